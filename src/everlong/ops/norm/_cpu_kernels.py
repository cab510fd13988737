"""The Numba kernels of ``cpu.py``: a range of tokens a thread; a token's channels lie in L1 while they are met thrice.

With r = 1 / sqrt(var + epsilon) and dn = dy weight (times silu(gate) where it comes last), the backward pass is

    du = r (dn - mean(dn) - n mean(dn n)), without mean(dn) where it is not centred
    dx = du, or du silu(gate) with dgate = du x silu'(gate) where the gate comes first; silu'(g) = s (1 + g (1 - s))

The gradients of weight and bias are sums over tokens: of PIECE tokens here, and of all pieces in ``cpu.py``.
"""

import numpy as np

from everlong.ops._activations import ONE, sigmoid
from everlong.ops._cpu import compiled

PIECE = 64  # tokens
NONE, FIRST, LAST = 0, 1, 2  # where the gate comes


@compiled
def _row(flat, place, token, length, width):
    """The channels of a token, counted over the batch."""
    start = place[0] + token // length * place[1] + token % length * place[2]
    return flat[start : start + width]


@compiled
def _mean_and_scale(u, epsilon, centred):
    """Mean (0 where not centred) and r of a group."""
    mean = np.float32(0)
    if centred:
        for c in range(u.size):
            mean += u[c]
        mean /= np.float32(u.size)
    square = np.float32(0)
    for c in range(u.size):
        square += (u[c] - mean) * (u[c] - mean)
    return mean, ONE / np.sqrt(square / np.float32(u.size) + np.float32(epsilon))


@compiled
def _open(gate, opening):
    for c in range(gate.size):
        opening[c] = gate[c] * sigmoid(gate[c])


@compiled
def forward(x, x_place, gate, gate_place, weight, bias, y, options, first, stop):
    """Equations (1) to (3) for pieces first to stop - 1 of ``y`` [B, T, C].

    ``x`` and ``gate`` are flat, and their places say where they hold [B, T, C]: (start, step of a row, step of a
    token). ``options`` are epsilon, groups, whether it is centred, and where the gate comes.
    """
    epsilon, groups, centred, order = options
    batch, length, channels = y.shape
    width = channels // groups
    u, opening = np.empty(channels, np.float32), np.empty(channels, np.float32)
    for token in range(first * PIECE, min(stop * PIECE, batch * length)):
        values, row = _row(x, x_place, token, length, channels), y[token // length, token % length]
        if order == NONE:
            for c in range(channels):
                u[c] = values[c]
        else:
            _open(_row(gate, gate_place, token, length, channels), opening)
            if order == FIRST:
                for c in range(channels):
                    u[c] = values[c] * opening[c]
            else:
                for c in range(channels):
                    u[c] = values[c]
        for start in range(0, channels, width):
            group = u[start : start + width]
            mean, scale = _mean_and_scale(group, epsilon, centred)
            for c in range(width):
                group[c] = (group[c] - mean) * scale
        if order == LAST:
            for c in range(channels):
                row[c] = (u[c] * weight[c] + bias[c]) * opening[c]
        else:
            for c in range(channels):
                row[c] = u[c] * weight[c] + bias[c]


@compiled
def backward(x, x_place, gate, gate_place, weight, bias, dy, dx, d_gate, d_weight, d_bias, options, first, stop):
    """All gradients for pieces first to stop - 1; ``d_weight`` and ``d_bias`` [pieces, C] start from zeros."""
    epsilon, groups, centred, order = options
    batch, length, channels = dx.shape
    width = channels // groups
    u, s, opening = (np.empty(channels, np.float32), np.empty(channels, np.float32), np.empty(channels, np.float32))
    n, dn = np.empty(channels, np.float32), np.empty(channels, np.float32)
    for token in range(first * PIECE, min(stop * PIECE, batch * length)):
        b, t = token // length, token % length
        values, errors, row = _row(x, x_place, token, length, channels), dy[b, t], dx[b, t]
        d_weights, d_biases = d_weight[token // PIECE], d_bias[token // PIECE]
        gates = _row(gate, gate_place, token, length, channels if order != NONE else 0)
        for c in range(gates.size):
            s[c] = sigmoid(gates[c])
            opening[c] = gates[c] * s[c]
        for c in range(channels):
            u[c] = values[c] * opening[c] if order == FIRST else values[c]
        for start in range(0, channels, width):
            group, normed = u[start : start + width], n[start : start + width]
            mean, scale = _mean_and_scale(group, epsilon, centred)
            for c in range(width):
                normed[c] = (group[c] - mean) * scale
            group[:] = scale  # u is not needed any more
        if order == LAST:
            d_gates = d_gate[b, t]
            for c in range(channels):
                slope = s[c] * (ONE + gates[c] * (ONE - s[c]))
                d_gates[c] = errors[c] * (n[c] * weight[c] + bias[c]) * slope
            for c in range(channels):
                dn[c] = errors[c] * opening[c]
        else:
            for c in range(channels):
                dn[c] = errors[c]
        for c in range(channels):
            d_weights[c] += dn[c] * n[c]
        for c in range(channels):
            d_biases[c] += dn[c]
        for c in range(channels):
            dn[c] *= weight[c]
        for start in range(0, channels, width):
            group, normed = dn[start : start + width], n[start : start + width]
            total, product = np.float32(0), np.float32(0)
            for c in range(width):
                total += group[c]
                product += group[c] * normed[c]
            total = total / np.float32(width) if centred else np.float32(0)
            product /= np.float32(width)
            for c in range(width):
                group[c] = group[c] - total - normed[c] * product
        for c in range(channels):
            dn[c] *= u[c]
        if order == FIRST:
            d_gates = d_gate[b, t]
            for c in range(channels):
                d_gates[c] = dn[c] * values[c] * (s[c] * (ONE + gates[c] * (ONE - s[c])))
            for c in range(channels):
                row[c] = dn[c] * opening[c]
        else:
            for c in range(channels):
                row[c] = dn[c]
