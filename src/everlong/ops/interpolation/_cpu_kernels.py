"""The Numba kernels of ``cpu.py``: pieces of tokens a thread, which lie in the cache for all interpolations.

With e_{i,t} = dy_{i,t} and D_t = sum_i e_{i,t} (w_i + m_{i,t}), the gradient of d_t, the backward pass of (2) is

    dm_{i,t} = e_{i,t} d_t,    dw_i = sum_t dm_{i,t},    dx_t = sum_i e_{i,t} - D_t + D_{t+1}

without D_{t+1} where a reset follows or the row ends; D_0 is the state's gradient. The gradients of the weights are
sums over tokens: of PIECE tokens here, and of all pieces in ``cpu.py``.
"""

import numpy as np

from everlong.ops._cpu import compiled

PIECE = 32  # tokens


@compiled
def _differences(x, state, resets, first, stop, differences):
    """Equation (1) for tokens first to stop - 1, counted over the batch; ``resets`` [B, T] or [B, 0], for none."""
    length = x.shape[1]
    for token in range(first, stop):
        b, t = token // length, token % length
        here, row = x[b, t], differences[token - first]
        if resets.shape[1] and resets[b, t]:
            for c in range(row.size):
                row[c] = -here[c]
        else:
            before = state[b] if t == 0 else x[b, t - 1]
            for c in range(row.size):
                row[c] = before[c] - here[c]


@compiled
def _interpolate(x, weight, change, differences, y, first, stop):
    """Equation (2); all but the weight and the differences [tokens, C], ``change`` perhaps of none."""
    for token in range(first, stop):
        here, difference, row = x[token], differences[token - first], y[token]
        if change.shape[0]:
            moved = change[token]
            for c in range(row.size):
                row[c] = here[c] + difference[c] * (weight[c] + moved[c])
        else:
            for c in range(row.size):
                row[c] = here[c] + difference[c] * weight[c]


@compiled
def _tokens(x):
    return x.reshape(-1, x.shape[2])


@compiled
def forward(x, weights, changes, state, resets, outputs, first, stop):
    """Equation (2) for pieces first to stop - 1 of [B, T, C].

    ``outputs`` are a tuple of [B, T, C], ``changes`` too, or one empty [0, 0, C].
    """
    batch, length, channels = x.shape
    differences = np.empty((PIECE, channels), np.float32)
    moves = changes[0].size > 0
    for piece in range(first, stop):
        start, end = piece * PIECE, min((piece + 1) * PIECE, batch * length)
        _differences(x, state, resets, start, end, differences)
        for i in range(len(outputs)):
            change = changes[i if moves else 0]
            _interpolate(_tokens(x), weights[i], _tokens(change), differences, _tokens(outputs[i]), start, end)


@compiled
def _slopes(error, weight, change, first, stop, slopes):
    """Adds an interpolation's part of D_t."""
    for token in range(first, stop):
        row, errors = slopes[token - first], error[token]
        if change.shape[0]:
            moved = change[token]
            for c in range(row.size):
                row[c] += errors[c] * (weight[c] + moved[c])
        else:
            for c in range(row.size):
                row[c] += errors[c] * weight[c]


@compiled
def _weight_gradient(error, differences, d_weight, d_change, first, stop):
    for token in range(first, stop):
        errors, difference = error[token], differences[token - first]
        for c in range(d_weight.size):
            d_weight[c] += errors[c] * difference[c]
        if d_change.shape[0]:
            row = d_change[token]
            for c in range(row.size):
                row[c] = errors[c] * difference[c]


@compiled
def _add(dx, errors, fresh, first, stop):
    for token in range(first, stop):
        row, source = dx[token], errors[token]
        if fresh:
            for c in range(row.size):
                row[c] = source[c]
        else:
            for c in range(row.size):
                row[c] += source[c]


@compiled
def backward(x, weights, changes, state, resets, errors, dx, d_weights, d_changes, d_state, first, stop):
    """All gradients for pieces first to stop - 1; ``d_weights`` [pieces, I, C] start from zeros.

    ``errors`` are a tuple of dy, ``d_changes`` one of dm or one empty [0, 0, C].
    """
    batch, length, channels = x.shape
    differences, slopes = np.empty((PIECE, channels), np.float32), np.empty((PIECE + 1, channels), np.float32)
    moves = changes[0].size > 0
    for piece in range(first, stop):
        start, end = piece * PIECE, min((piece + 1) * PIECE, batch * length)
        _differences(x, state, resets, start, end, differences)
        slopes[:] = 0
        for i in range(len(errors)):
            error, which = _tokens(errors[i]), i if moves else 0
            # the token after the piece has a part in the piece's last
            _slopes(error, weights[i], _tokens(changes[which]), start, min(end + 1, batch * length), slopes)
            _weight_gradient(error, differences, d_weights[piece, i], _tokens(d_changes[which]), start, end)
            _add(_tokens(dx), error, i == 0, start, end)
        for token in range(start, end):
            b, t = token // length, token % length
            row, here, after = dx[b, t], slopes[token - start], slopes[token - start + 1]
            if t + 1 < length and not (resets.shape[1] and resets[b, t + 1]):
                for c in range(channels):
                    row[c] += after[c] - here[c]
            else:
                for c in range(channels):
                    row[c] -= here[c]
            if t == 0 and not (resets.shape[1] and resets[b, 0]):
                d_state[b] = here
