"""The Numba kernels of ``cpu.py``: tiles of TILE states by TILE channels in registers, a range of channels a thread.

The lanes of a vector are channels, so that the sums over states of (2), and of the gradients of x and dt, need no sum
across lanes. The backward pass goes through segments of tokens from the last to the first: it computes a segment's
states again from the state before it, which the forward pass has kept, and then, with D of equation (3) in
``chunked.py`` carried in registers,

    dh_t = C_t dy_t + D_{t+1},    D_t = exp(dt_t A) dh_t,    G_t = D_t h_{t-1}
    dx_t = dt_t sum_n B_t dh_t,   ddt_t = x_t sum_n B_t dh_t + sum_n A G_t,    dA = sum_t dt_t G_t
    dB_t = sum_c dt_t x_t dh_t,   dC_t = sum_c dy_t h_t

The sums over channels are left in lanes until all of a thread's tiles have added to them.
"""

from typing import Any, no_type_check

import numpy as np
from numba.core import cgutils, types

from everlong.ops._cpu import compiled
from everlong.ops._vectors import LOG2E, TILE, Vectors, vector_code

SEGMENT = 32  # tokens whose states the backward pass computes again at once: 64 KiB with their decays


@no_type_check
class _Tokens:
    """What every kernel reads of a token: dt_t, dt_t x_t, exp(dt_t A), and whether a reset cuts off what is before."""

    def __init__(self, vectors: Vectors, dt: Any, x: Any, rates: Any, cuts: Any):
        self.vectors, self.dt, self.x, self.rates, self.cuts = vectors, dt, x, rates, cuts

    def steps(self, t: Any) -> Any:
        return self.vectors.load(self.dt, t)

    def inputs(self, t: Any) -> Any:
        return self.vectors.load(self.x, t)

    def rate(self, n: int) -> Any:
        return self.vectors.load(self.rates, self.vectors.integer(n))

    def decay(self, steps: Any, n: int) -> Any:
        scaled = self.vectors.multiply(steps, self.vectors.constant(LOG2E))
        return self.vectors.exp2(self.vectors.multiply(scaled, self.rate(n)))

    def cut(self, t: Any) -> Any:
        byte = self.vectors.builder.load(self.vectors.address(self.cuts, t))
        return self.vectors.builder.icmp_unsigned("!=", byte, byte.type(0))


@no_type_check
@vector_code
def _scan(typingctx, dt, x, rates, cuts, B, C, state, outputs, fresh, count):
    """Equations (1) and (2) for ``count`` tokens of a tile; ``outputs`` are added to unless ``fresh``."""

    def generate(context, builder, signature, arguments):
        vectors = Vectors(context, builder)
        places = [vectors.place(signature.args[n], arguments[n]) for n in range(8)]
        tokens, (writes, reads, rows, sums) = _Tokens(vectors, *places[:4]), places[4:]
        fresh, count = arguments[8:]
        tile = vectors.registers(rows)
        with cgutils.for_range(builder, count) as loop:
            t = loop.index
            steps, cut = tokens.steps(t), tokens.cut(t)
            written = vectors.multiply(steps, tokens.inputs(t))
            parts = [vectors.zeros] * 4  # four chains of additions: one would wait for itself
            for n, row in enumerate(tile):
                kept = vectors.multiply(tokens.decay(steps, n), vectors.unless(cut, builder.load(row)))
                element = vectors.multiply_add(vectors.spread(writes, t, n), written, kept)
                builder.store(element, row)
                parts[n % 4] = vectors.multiply_add(vectors.spread(reads, t, n), element, parts[n % 4])
            before = vectors.unless(fresh, vectors.load(sums, t))
            vectors.store(builder.fadd(vectors.add_up(parts), before), sums, t)
        vectors.put_back(tile, rows)
        return context.get_dummy_value()

    return types.void(dt, x, rates, cuts, B, C, state, outputs, fresh, count), generate


@no_type_check
@vector_code
def _remember(typingctx, dt, x, rates, cuts, B, state, states, decays, count):
    """Equation (1) once more, leaving h_{t-1} in rows TILE t + n of ``states``, h_T last, and the decays likewise."""

    def generate(context, builder, signature, arguments):
        vectors = Vectors(context, builder)
        places = [vectors.place(signature.args[n], arguments[n]) for n in range(8)]
        tokens, (writes, rows, states, decays) = _Tokens(vectors, *places[:4]), places[4:]
        tile, last = vectors.registers(rows), builder.mul(arguments[8], vectors.integer(TILE))
        with cgutils.for_range(builder, arguments[8]) as loop:
            t = loop.index
            first = builder.mul(t, vectors.integer(TILE))
            steps, cut = tokens.steps(t), tokens.cut(t)
            written = vectors.multiply(steps, tokens.inputs(t))
            for n, row in enumerate(tile):
                place = builder.add(first, vectors.integer(n))
                before, decay = builder.load(row), vectors.unless(cut, tokens.decay(steps, n))
                vectors.store(before, states, place)
                vectors.store(decay, decays, place)
                kept = vectors.multiply(decay, vectors.unless(cut, before))
                builder.store(vectors.multiply_add(vectors.spread(writes, t, n), written, kept), row)
        for n, row in enumerate(tile):
            vectors.store(builder.load(row), states, builder.add(last, vectors.integer(n)))
        return context.get_dummy_value()

    return types.void(dt, x, rates, cuts, B, state, states, decays, count), generate


@no_type_check
@vector_code
def _return(typingctx, inputs, memory, errors, gradients, sums, carried, fresh, count):
    """The backward pass of a segment, from its last token to its first.

    ``inputs`` are dt, x, rates, cuts, B, C; ``memory`` what ``_remember`` has left; ``errors`` dy; ``gradients`` dx,
    ddt, dA; ``sums`` dB and dC in lanes, one row a token and state; ``carried`` D.
    """

    def generate(context, builder, signature, arguments):
        vectors = Vectors(context, builder)

        def places(number):
            kinds, values = signature.args[number], cgutils.unpack_tuple(builder, arguments[number])
            return [vectors.place(kind, value) for kind, value in zip(kinds, values, strict=True)]

        *of_tokens, writes, reads = places(0)
        tokens = _Tokens(vectors, *of_tokens)
        (states, decays), (errors,), (dx, d_dt, d_rates), (dB, dC) = (places(n) for n in range(1, 5))
        place = vectors.place(signature.args[5], arguments[5])
        fresh, count = arguments[6:]
        tile, one = vectors.registers(place), vectors.integer(1)
        with cgutils.for_range(builder, count) as loop:
            t = builder.sub(builder.sub(count, one), loop.index)
            first = builder.mul(t, vectors.integer(TILE))
            steps, inputs, error = tokens.steps(t), tokens.inputs(t), vectors.load(errors, t)
            product = vectors.multiply(steps, inputs)
            written, decayed = [vectors.zeros] * 4, [vectors.zeros] * 4
            for n, row in enumerate(tile):
                here, after = (builder.add(first, vectors.integer(n + more)) for more in (0, TILE))
                d_state = vectors.multiply_add(vectors.spread(reads, t, n), error, builder.load(row))
                vectors.store(
                    vectors.multiply_add(error, vectors.load(states, after), vectors.load(dC, here)), dC, here
                )
                vectors.store(vectors.multiply_add(product, d_state, vectors.load(dB, here)), dB, here)
                written[n % 4] = vectors.multiply_add(vectors.spread(writes, t, n), d_state, written[n % 4])
                back = vectors.multiply(vectors.load(decays, here), d_state)
                builder.store(back, row)
                d_log, number = vectors.multiply(back, vectors.load(states, here)), vectors.integer(n)
                decayed[n % 4] = vectors.multiply_add(tokens.rate(n), d_log, decayed[n % 4])
                vectors.store(vectors.multiply_add(steps, d_log, vectors.load(d_rates, number)), d_rates, number)
            written, decayed = vectors.add_up(written), vectors.add_up(decayed)
            before = [vectors.unless(fresh, vectors.load(gradient, t)) for gradient in (dx, d_dt)]
            vectors.store(vectors.multiply_add(steps, written, before[0]), dx, t)
            vectors.store(vectors.multiply_add(inputs, written, builder.fadd(decayed, before[1])), d_dt, t)
        vectors.put_back(tile, place)
        return context.get_dummy_value()

    return types.void(inputs, memory, errors, gradients, sums, carried, fresh, count), generate


@compiled
def _flat(x):
    """[B, T, width] or [B, N, width] as one flat array, with its sizes: once a kernel, as it takes a token's time."""
    return x.reshape(-1), x.shape[1], x.shape[2]


@compiled
def _at(x, b, t, column):
    """Tokens t, t + 1, ... of row b of what ``_flat`` has made flat, or rows, from a column on."""
    flat, length, width = x
    return flat, (b * length + t) * width + column, width


@compiled
def forward(inputs, outputs, state, kept, first, stop):
    """Equations (1) and (2) for tiles of channels first to stop - 1, counted over the batch.

    ``inputs`` are x, dt [B, T, C], A [1, N, C], B, C [B, T, N] and resets [B, T, 1], with C and N whole tiles.
    ``state`` [B, N, C] is the initial state, and becomes the final one. ``kept`` [T / SEGMENT, B, N, C] gets the state
    before each segment; its first axis may be 0.
    """
    x, dt, rates, B, C, resets = inputs
    length, channels = x.shape[1:]
    states, tiles = rates.shape[1], channels // TILE
    of_x, of_dt, of_rates, of_resets, of_B, of_C = _flat(x), _flat(dt), _flat(rates), _flat(resets), _flat(B), _flat(C)
    of_state, of_outputs = _flat(state), _flat(outputs)
    for unit in range(first, stop):
        b, column = unit // tiles, unit % tiles * TILE
        for start in range(0, length, SEGMENT):
            count = min(SEGMENT, length - start)
            if kept.shape[0]:
                kept[start // SEGMENT, b, :, column : column + TILE] = state[b, :, column : column + TILE]
            for n in range(0, states, TILE):
                _scan(
                    _at(of_dt, b, start, column),
                    _at(of_x, b, start, column),
                    _at(of_rates, 0, n, column),
                    _at(of_resets, b, start, 0),
                    _at(of_B, b, start, n),
                    _at(of_C, b, start, n),
                    _at(of_state, b, n, column),
                    _at(of_outputs, b, start, column),
                    n == 0,
                    count,
                )


@compiled
def _total(flat, start):
    total = np.float32(0)
    for lane in range(TILE):
        total += flat[start + lane]
    return total


@compiled
def backward(inputs, kept, errors, carried, gradients, first, stop):
    """All gradients for groups of channels first to stop - 1, counted over the batch.

    ``carried`` [B, N, C] is the gradient of the final state, and becomes the initial state's. ``gradients`` are dx,
    ddt, dA [B, N, C], which starts from zeros and is a sum over tokens only, and dB and dC [B, T, groups, N], each
    group's share of the channels summed.
    """
    x, dt, rates, B, C, resets = inputs
    dx, d_dt, d_rates, dB, dC = gradients
    length, channels = x.shape[1:]
    groups, states = dB.shape[2:]
    tiles = channels // TILE
    memory, decays = np.empty((SEGMENT + 1) * TILE * TILE, np.float32), np.empty(SEGMENT * TILE * TILE, np.float32)
    sums = np.empty((2, states // TILE, SEGMENT * TILE * TILE), np.float32)  # of dB and dC
    of_sums, of_each = sums.reshape(-1), SEGMENT * TILE * TILE
    of_x, of_dt, of_rates, of_resets, of_B, of_C = _flat(x), _flat(dt), _flat(rates), _flat(resets), _flat(B), _flat(C)
    of_errors, of_carried, of_kept = _flat(errors), _flat(carried), _flat(kept.reshape(-1, states, channels))
    of_dx, of_d_dt, of_d_rates = _flat(dx), _flat(d_dt), _flat(d_rates)
    for unit in range(first, stop):
        b, group = unit // groups, unit % groups
        for start in range((length - 1) // SEGMENT * SEGMENT, -1, -SEGMENT):
            count = min(SEGMENT, length - start)
            sums[:] = 0
            segment = start // SEGMENT
            for tile in range(group * tiles // groups, (group + 1) * tiles // groups):
                column = tile * TILE
                for n in range(0, states, TILE):
                    steps, values = _at(of_dt, b, start, column), _at(of_x, b, start, column)
                    rate, cuts, write = _at(of_rates, 0, n, column), _at(of_resets, b, start, 0), _at(of_B, b, start, n)
                    remembered = (memory, 0, TILE), (decays, 0, TILE)
                    before = _at(of_kept, segment * x.shape[0] + b, n, column)
                    _remember(steps, values, rate, cuts, write, before, remembered[0], remembered[1], count)
                    _return(
                        (steps, values, rate, cuts, write, _at(of_C, b, start, n)),
                        remembered,
                        (_at(of_errors, b, start, column),),
                        (_at(of_dx, b, start, column), _at(of_d_dt, b, start, column), _at(of_d_rates, b, n, column)),
                        (
                            (of_sums, n // TILE * of_each, TILE),
                            (of_sums, (states + n) // TILE * of_each, TILE),
                        ),
                        _at(of_carried, b, n, column),
                        n == 0,
                        count,
                    )
            for t in range(count):
                for n in range(states):
                    row = (t * TILE + n % TILE) * TILE
                    dB[b, start + t, group, n] = _total(of_sums, n // TILE * of_each + row)
                    dC[b, start + t, group, n] = _total(of_sums, (states // TILE + n // TILE) * of_each + row)
