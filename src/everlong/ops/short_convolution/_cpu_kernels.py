"""The Numba kernels of ``cpu.py``: blocks of channels a thread, which go over the tokens once, LENGTH at a time.

The backward pass computes a_t of equation (1) again rather than keep it, and with s = sigmoid(a_t)

    da_t = dy_t s (1 + a_t (1 - s))
    dx_t = sum_d weight[D - 1 - d] da_{t + d},    dweight[D - 1 - d] = sum_t da_t x_{t - d}

A token's *age* is how many inputs before it it sees: those of its document, W at most. Scratch rows 0 to W - 1 are the
inputs before the LENGTH tokens, or what their gradients have come to.
"""

import numpy as np

from everlong.ops._activations import ONE, sigmoid
from everlong.ops._cpu import compiled

BLOCK = 256  # channels
LENGTH = 16  # tokens: with this block, what is worked on stays in the L1 cache


@compiled
def _ages(resets, window, ages):
    """The age of each token of a row; ``resets`` may be empty, for none."""
    ages[:] = window
    if resets.size:
        age = window  # the inputs before the row are of the first token's document
        for t in range(resets.size):
            age = 0 if resets[t] else min(age + 1, window)
            ages[t] = age


@compiled
def _fetch(x, place, b, first, count, column, rows):
    """Inputs of ``count`` tokens from ``first`` on."""
    for i in range(count):
        start = place[0] + b * place[1] + (first + i) * place[2] + column
        row, source = rows[i], x[start : start + rows.shape[1]]
        for c in range(row.size):
            row[c] = source[c]


@compiled
def _filter(inputs, taps, bias, ages, count, sums):
    """Equation (1)."""
    window, width = taps.shape[0] - 1, taps.shape[1]
    for i in range(count):
        for c in range(width):
            sums[i, c] = bias[c] + taps[window, c] * inputs[window + i, c]
        for d in range(1, ages[i] + 1):
            for c in range(width):
                sums[i, c] += taps[window - d, c] * inputs[window + i - d, c]


@compiled
def _blocks(channels):
    return (channels + BLOCK - 1) // BLOCK


@compiled
def forward(x, place, taps, bias, state, resets, y, final, first, stop):
    """Equations (1) and (2) for blocks first to stop - 1, counted over the batch.

    ``x`` is flat and ``place`` says where it holds [B, T, C]: (start, step of a row, step of a token). ``taps`` [D, C],
    ``bias`` [C], ``state`` and ``final`` [B, W, C], ``resets`` [B, T] or [B, 0], ``y`` [B, T, C].
    """
    length, channels = y.shape[1:]
    window = state.shape[1]
    ages = np.empty(length, np.int64)
    for unit in range(first, stop):
        b, column = unit // _blocks(channels), unit % _blocks(channels) * BLOCK
        end = min(column + BLOCK, channels)
        width = end - column
        inputs, sums = np.empty((window + LENGTH, width), np.float32), np.empty((LENGTH, width), np.float32)
        filters, start = taps[:, column:end].copy(), bias[column:end]
        inputs[:window] = state[b, :, column:end]
        _ages(resets[b], window, ages)
        for t in range(0, length, LENGTH):
            count = min(LENGTH, length - t)
            _fetch(x, place, b, t, count, column, inputs[window:])
            _filter(inputs, filters, start, ages[t:], count, sums)
            for i in range(count):
                row, a = y[b, t + i, column:end], sums[i]
                for c in range(width):
                    row[c] = a[c] * sigmoid(a[c])
            for w in range(window):
                inputs[w] = inputs[count + w]
        final[b, :, column:end] = inputs[:window]
        for w in range(window - ages[length - 1] - 1):  # before the last token's document
            final[b, w, column:end] = 0


@compiled
def backward(x, place, taps, bias, state, resets, dy, d_final, dx, d_taps, d_bias, d_state, first, stop):
    """All gradients for blocks first to stop - 1, counted over the batch.

    As in ``forward``; ``dx`` [B, T, C], ``d_taps`` [B, D, C], ``d_bias`` [B, C], ``d_state`` [B, W, C]; ``d_final`` is
    [B, 0, C] where it is zero.
    """
    length, channels = dx.shape[1:]
    window = state.shape[1]
    ages = np.empty(length, np.int64)
    for unit in range(first, stop):
        b, column = unit // _blocks(channels), unit % _blocks(channels) * BLOCK
        end = min(column + BLOCK, channels)
        width = end - column
        inputs, sums = np.empty((window + LENGTH, width), np.float32), np.empty((LENGTH, width), np.float32)
        filters, start = taps[:, column:end].copy(), bias[column:end]
        d_inputs, d_filters = np.zeros((window + LENGTH, width), np.float32), np.zeros(filters.shape, np.float32)
        d_start = np.zeros(width, np.float32)
        inputs[:window] = state[b, :, column:end]
        _ages(resets[b], window, ages)
        for t in range(0, length, LENGTH):
            count = min(LENGTH, length - t)
            _fetch(x, place, b, t, count, column, inputs[window:])
            _filter(inputs, filters, start, ages[t:], count, sums)
            for i in range(count):
                error, a = dy[b, t + i, column:end], sums[i]
                for c in range(width):
                    s = sigmoid(a[c])
                    a[c] = error[c] * s * (ONE + a[c] * (ONE - s))
            _return(inputs, filters, ages[t:], count, sums, d_inputs, d_filters, d_start)
            for i in range(count):
                target, source = _gradient(dx, d_state, b, t + i - window, column, end), d_inputs[i]
                for c in range(width):
                    target[c] = source[c]
            for w in range(window):
                inputs[w] = inputs[count + w]
                d_inputs[w] = d_inputs[count + w]
        for w in range(window):
            seen = d_final.shape[1] > 0 and window - 1 - w <= ages[length - 1]
            target = _gradient(dx, d_state, b, length + w - window, column, end)
            target[:] = d_inputs[w] + d_final[b, w, column:end] if seen else d_inputs[w]
        d_taps[b, :, column:end] = d_filters
        d_bias[b, column:end] = d_start


@compiled
def _return(inputs, taps, ages, count, errors, d_inputs, d_taps, d_bias):
    """From da_t to what ``_filter`` has read; the gradients of the tokens' inputs are written, all others added to."""
    window, width = taps.shape[0] - 1, taps.shape[1]
    for i in range(count):
        for c in range(width):
            d_bias[c] += errors[i, c]
        for c in range(width):
            d_inputs[window + i, c] = taps[window, c] * errors[i, c]
        for d in range(1, ages[i] + 1):
            for c in range(width):
                d_inputs[window + i - d, c] += taps[window - d, c] * errors[i, c]
        for d in range(ages[i] + 1):
            for c in range(width):
                d_taps[window - d, c] += errors[i, c] * inputs[window + i - d, c]


@compiled
def _gradient(dx, d_state, b, t, column, end):
    """Where the gradient of the input of token t goes, before the row's start to the state's."""
    return dx[b, t, column:end] if t >= 0 else d_state[b, d_state.shape[1] + t, column:end]
