"""The Numba kernels of ``cpu.py``: the recurrence with tiles of the state in registers, a range of heads a thread.

A multiplication by the decay a token is saved by keeping, within a segment of tokens, the state divided by the decay
since the segment's first token. With c_t the sum of the log-decays after that first token:

    S_t = diag(exp c_t) Z_t,    Z_t = Z_{t-1} + (exp(-c_t) k_t) v_t^T,    o_t = (exp(c_t) q_t)^T Z_t          (3)

A segment ends before c falls below ``-LIMIT``, so exp(-c_t) never overflows; a token whose own decay is stronger starts
a segment, and its decay multiplies the state as exp(g_t) <= 1. All gradients are recurrences of the same form:

    dq_t = S_t do_t                                         the state again, read by value channel            (4)
    dS_t = diag(exp g_{t+1}) dS_{t+1} + q_t do_t^T          carried backwards                                 (5)
    dv_t = dS_t^T k_t,    dk_t = dS_t v_t                   its two read-outs                                 (6)
    dg_t = dg_{t+1} + q_t dq_t - k_t dk_t                   summed over K where a head has one decay          (7)

(7) holds because dS_t S_t, summed over V, is q_t dq_t + dg_{t+1} by (5) and dg_t + k_t dk_t by (1); it starts from the
sum of dS_T S_T, and from zero where a reset follows. What a token reads of its own write, q_t k_t (v_t . do_t), is in
both terms: it is left out of dq and dk until (7) is done, or its rounding would drown the gradients of strong decays.
With a bonus the read-out at t sees S_{t-1}: q, o, dq and do are then taken at t + 1 (``lag`` is 1), and the bonus part
stands apart.
"""

from typing import Any, NamedTuple, no_type_check

import numpy as np
from numba.core import cgutils, types

from everlong.ops import _vectors
from everlong.ops._cpu import compiled
from everlong.ops._vectors import LOG2E, TILE, Vectors, vector_code

SEGMENT = 64  # tokens at most: what a segment needs stays in the L1 and L2 caches
FORWARDS, BACKWARDS = np.int64(1), np.int64(-1)  # of this type, so that Numba does not compile each apart
FORGOTTEN = 18.0  # exp(-18) = 1.5e-8 is below half of float32's epsilon
LIMIT = 40.0  # exp(40) = 2e17: float32 has room for keys and values up to 1e21
EXP2 = tuple(np.float32(factor) for factor in _vectors.EXP2)


class Rows(NamedTuple):
    """One head's tokens in an array: token t is ``flat[origin + t * jump :][:width]``."""

    flat: Any
    origin: int
    jump: int
    width: int


class Space(NamedTuple):
    """What a thread works in: one row a token of a segment, padded to whole tiles."""

    write_keys: Any  # [L, K]
    read_keys: Any
    sum_keys: Any
    write_values: Any  # [L, V]
    read_values: Any
    sum_values: Any
    logs: Any  # c_t [L, 1 or K], float64
    up: Any  # exp(c_t) [L, 1 or K]
    down: Any  # exp(-c_t)
    sums: Any  # the log-decay that the stored state lacks [1 or K], float64
    scale: Any  # the decay of the stored state on its way into a segment [K]
    ones: Any  # [L]
    none: Any  # [L, 0]


@no_type_check
def _make_sweep(own: bool) -> Any:
    """Equation (3) for all tiles of a state, in LLVM vectors that stay in registers.

    The loops over tiles are in here because a call from Numba costs as much as half a tile.

    Args:
        own: whether what is read includes the token's own write.
    """

    @vector_code
    def sweep(typingctx, write, read, lanes, outputs, state, inward, outward, count, tiles):
        """Runs ``count`` tokens; the state's rows meet ``write`` and ``read``, its columns ``lanes`` and ``outputs``.

        The first five arguments are (flat array, index of the first, step to the next): four go by tokens, the state by
        rows. Lanes are multiplied by ``inward`` and what is read by ``outward``, both one number a token. ``tiles`` are
        how many there are below each other, and side by side.
        """

        def generate(context, builder, signature, arguments):
            vectors = Vectors(context, builder)
            kinds = signature.args
            writes, reads, values, sums, rows = (vectors.place(kinds[n], arguments[n]) for n in range(5))
            one = vectors.integer(1)
            weights_in, weights_out = ((vectors.pointer(kinds[n], arguments[n]), one) for n in (5, 6))
            count, tiles = arguments[7], cgutils.unpack_tuple(builder, arguments[8])

            def run(row: Any, column: Any) -> None:
                met = [vectors.moved(place, row) for place in (writes, reads)]
                beside = [vectors.moved(place, column) for place in (values, sums)]
                corner = vectors.moved((vectors.address(rows, row), rows[1]), column)
                fresh = builder.icmp_unsigned("==", row, row.type(0))
                _tile(vectors, own, [*met, *beside], corner, (weights_in, weights_out), fresh, count)

            with cgutils.for_range(builder, tiles[1]) as across, cgutils.for_range(builder, tiles[0]) as down:
                run(*(builder.mul(loop.index, vectors.integer(TILE)) for loop in (down, across)))
            return context.get_dummy_value()

        return types.void(write, read, lanes, outputs, state, inward, outward, count, tiles), generate

    return sweep


@no_type_check
def _tile(vectors: Vectors, own: bool, places: Any, state: Any, weights: Any, fresh: Any, count: Any) -> None:
    """Writes the code for one tile."""
    (writes, reads, values, sums), builder = places, vectors.builder
    tile = vectors.registers(state)
    with cgutils.for_range(builder, count) as loop:
        value = builder.fmul(vectors.load(values, loop.index), vectors.spread(weights[0], loop.index))
        parts = [vectors.zeros] * 4  # four chains of additions: one would wait for itself
        for r, row in enumerate(tile):
            before_write = builder.load(row)
            element = vectors.multiply_add(vectors.spread(writes, loop.index, r), value, before_write)
            builder.store(element, row)
            met = element if own else before_write
            parts[r % 4] = vectors.multiply_add(vectors.spread(reads, loop.index, r), met, parts[r % 4])
        before = builder.select(fresh, vectors.zeros, vectors.load(sums, loop.index))
        weight = vectors.spread(weights[1], loop.index)
        vectors.store(vectors.multiply_add(vectors.add_up(parts), weight, before), sums, loop.index)
    vectors.put_back(tile, state)


_sweep_own, _sweep_before = _make_sweep(True), _make_sweep(False)


@compiled
def _sweep(write, read, lanes, outputs, state, inward, outward, count, own):
    """All tiles of a state whose rows meet ``write`` and ``read``, and whose columns meet ``lanes`` and ``outputs``."""
    rows, columns = state.shape
    place, tiles = (state.reshape(-1), 0, columns), (rows // TILE, columns // TILE)
    if own:
        _sweep_own(write, read, lanes, outputs, place, inward, outward, count, tiles)
    else:
        _sweep_before(write, read, lanes, outputs, place, inward, outward, count, tiles)


@compiled
def _head(x, b, h):
    """One head of [B, T, heads, width]."""
    length, heads, width = x.shape[1:]
    return Rows(x.reshape(-1), (b * length * heads + h) * width, heads * width, width)


@compiled
def _scratch(rows, columns):
    """Zeros, on a cache line's boundary, with the columns padded to whole tiles."""
    size = rows * ((columns + TILE - 1) // TILE * TILE)
    flat = np.zeros(size + 16, np.float32)
    start = (-flat.ctypes.data % 64) // 4
    return flat[start : start + size].reshape(rows, -1)


@compiled
def _space(key_dim, value_dim, channels):
    return Space(
        _scratch(SEGMENT, key_dim),
        _scratch(SEGMENT, key_dim),
        _scratch(SEGMENT, key_dim),
        _scratch(SEGMENT, value_dim),
        _scratch(SEGMENT, value_dim),
        _scratch(SEGMENT, value_dim),
        np.empty((SEGMENT, channels)),
        np.empty((SEGMENT, channels), np.float32),
        np.empty((SEGMENT, channels), np.float32),
        np.empty(channels),
        np.ones(_scratch(1, key_dim).size, np.float32),
        np.ones(SEGMENT, np.float32),
        np.empty((SEGMENT, 0), np.float32),
    )


@compiled
def _exp(x, out):
    """exp(x) in float32 of float64 x <= 0: a polynomial, which LLVM vectorises, as it does not the library's exp."""
    for i in range(x.size):
        scaled = max(x[i] * LOG2E, -150.0)
        whole = np.rint(scaled)
        part = np.float32(scaled - whole)
        power = EXP2[7] * part + EXP2[6]
        power = power * part + EXP2[5]
        power = power * part + EXP2[4]
        power = power * part + EXP2[3]
        power = power * part + EXP2[2]
        power = power * part + EXP2[1]
        power = power * part + EXP2[0]
        exponent = max(np.int32(whole) + np.int32(127), np.int32(0)) << np.int32(23)
        out[i] = power * np.int32(exponent).view(np.float32)


@compiled
def _segment(decays, h, cuts, first, step, left, space):
    """Finds the segment of tokens that starts at ``first``, and its weights in equation (3), which it leaves in space.

    Args:
        decays: one row's log-decays [T, H, 1 or K].
        h: the head.
        cuts: one row's resets [T].
        first: the first token.
        step: 1 forwards, -1 backwards.
        left: tokens left.
        space: its ``sums`` are taken over from the segment before, and left for the one after.

    Returns:
        the number of tokens, and whether a reset cuts off the state before them.
    """
    length, channels = decays.shape[0], decays.shape[2]
    logs = space.logs
    t = first if step > 0 else first + 1  # backwards, the decay of token t + 1 leads to token t
    cut = 0 <= t < length and cuts[t]
    for d in range(channels):
        logs[0, d] = space.sums[d] + (decays[t, h, d] if 0 <= t < length else 0.0)
    _exp(logs[0], space.scale[:channels])
    if channels == 1:
        space.scale[:] = space.scale[0]
    logs[0] = 0
    count = 1
    while count < min(left, SEGMENT):
        t += step
        before, after, decay = logs[count - 1], logs[count], decays[t, h]
        ends = cuts[t]
        for d in range(channels):
            after[d] = before[d] + decay[d]
            ends |= after[d] < -LIMIT
        if ends:
            break
        count += 1
    space.sums[:] = logs[count - 1]
    up, down = space.up[:count].reshape(-1), space.down[:count].reshape(-1)
    _exp(logs[:count].reshape(-1), up)
    for i in range(up.size):
        down[i] = np.float32(1) / up[i]
    return count, cut


@compiled
def _finish(space):
    """Leaves in ``scale`` what the stored state has still to be multiplied by."""
    channels = space.sums.size
    _exp(space.sums, space.scale[:channels])
    if channels == 1:
        space.scale[:] = space.scale[0]


@compiled
def _direct(rows, lag, weights):
    """Whether the kernel can work on the tokens where they lie: no padding, no token beyond the ends, no weights."""
    return lag == 0 and weights.shape[1] == 0 and rows.width % TILE == 0


@compiled
def _fetch(rows, first, step, count, cuts, lag, shift, weights, scratch):
    """Tokens first + shift, first + shift + step, ... times ``weights``, as (flat array, start, step)."""
    if _direct(rows, lag, weights):
        return rows.flat, rows.origin + first * rows.jump, step * rows.jump
    for i in range(count):
        t, row = first + step * i + shift, scratch[i]
        if t < 0 or t >= cuts.size or (shift == 1 and cuts[t]):  # the token does not see the state before it
            row[:] = 0
            continue
        start = rows.origin + t * rows.jump
        values, weight = rows.flat[start : start + rows.width], weights[i]
        if weight.size:
            for c in range(values.size):
                row[c] = values[c] * weight[c]
        else:
            for c in range(values.size):
                row[c] = values[c]
    return scratch.reshape(-1), 0, scratch.shape[1]


@compiled
def _target(rows, first, step, lag, weights, scratch):
    if _direct(rows, lag, weights):
        return rows.flat, rows.origin + first * rows.jump, step * rows.jump
    return scratch.reshape(-1), 0, scratch.shape[1]


@compiled
def _deliver(rows, first, step, count, cuts, lag, shift, weights, scratch):
    """Takes what was read from scratch to where it belongs; the counterpart of ``_fetch``."""
    if _direct(rows, lag, weights):
        return
    for i in range(count):
        t, row = first + step * i + shift, scratch[i]
        if 0 <= t < cuts.size:
            start = rows.origin + t * rows.jump
            values, weight = rows.flat[start : start + rows.width], weights[i]
            if shift == 1 and cuts[t]:
                values[:] = 0
            elif weight.size:
                for c in range(values.size):
                    values[c] = row[c] * weight[c]
            else:
                for c in range(values.size):
                    values[c] = row[c]


@compiled
def _set(state, values, transposed):
    """Sets a padded state from values of its size or, transposed, of the other; no values are zeros."""
    state[:] = 0
    if transposed:
        for i in range(values.shape[1]):
            row = state[i]
            for j in range(values.shape[0]):
                row[j] = values[j, i]
    else:
        for i in range(values.shape[0]):
            row, source = state[i], values[i]
            for j in range(source.size):
                row[j] = source[j]


@compiled
def _get(state, values):
    for i in range(values.shape[0]):
        row, source = values[i], state[i]
        for j in range(row.size):
            row[j] = source[j]


@compiled
def _multiply(state, scale, transposed):
    for i in range(state.shape[0]):
        row = state[i]
        if transposed:
            for j in range(row.size):
                row[j] *= scale[j]
        else:
            for j in range(row.size):
                row[j] *= scale[i]


@compiled
def _traverse(step, lag, decays, h, cuts, writes, reads, outs, state, turned, space):
    """Runs (3) over a head's row, forwards or backwards.

    ``writes``, ``reads`` and ``outs`` are (rows as wide as a key, rows as wide as a value). ``state``, [K, V], is where
    a key reads a value; ``turned``, [V, K], where a value reads a key. Either may be empty and is then left out. Tokens
    -lag to T - 1 are visited: -1 has no k and v, but with a bonus the first token's q meets the initial state there.
    """
    per_channel = space.up.shape[1] > 1
    inward, outward = (space.ones, space.ones) if per_channel else (space.down.reshape(-1), space.up.reshape(-1))
    down, up = (space.down, space.up) if per_channel else (space.none, space.none)
    write, read = (0, lag) if step > 0 else (lag, 0)  # q, o, dq and do are read forwards and written backwards
    left = cuts.size + lag
    first = -lag if step > 0 else cuts.size - 1
    space.sums[:] = 0
    while left > 0:
        count, cut = _segment(decays, h, cuts, first, step, left, space)
        if cut:
            state[:] = 0
            turned[:] = 0
        else:
            _multiply(state, space.scale, False)
            _multiply(turned, space.scale, True)
        keys = _fetch(writes[0], first, step, count, cuts, lag, write, down, space.write_keys)
        values = _fetch(writes[1], first, step, count, cuts, lag, write, space.none, space.write_values)
        if state.size:
            read_at = _fetch(reads[0], first, step, count, cuts, lag, read, up, space.read_keys)
            target = _target(outs[1], first, step, lag, space.none, space.sum_values)
            _sweep(keys, read_at, values, target, state, inward, outward, count, True)
            _deliver(outs[1], first, step, count, cuts, lag, read, space.none, space.sum_values)
        if turned.size:
            read_at = _fetch(reads[1], first, step, count, cuts, lag, read, space.none, space.read_values)
            target = _target(outs[0], first, step, lag, up, space.sum_keys)
            _sweep(values, read_at, keys, target, turned, inward, outward, count, False)
            _deliver(outs[0], first, step, count, cuts, lag, read, up, space.sum_keys)
        first += step * count
        left -= count


@compiled
def forward(inputs, outputs, final_state, first, stop):
    """Equations (1) to (2') for heads first to stop - 1, counted over the batch.

    ``inputs`` are q, k, v, log_decay [B, T, H, 1 or K], initial_state, bonus [H, K] or [0, K], and resets [B, T].
    """
    q, k, v, log_decay, initial_state, bonus, resets = inputs
    heads, value_dim = v.shape[2:]
    groups, key_dim = q.shape[2:]
    lag = min(bonus.shape[0], 1)
    space = _space(key_dim, value_dim, log_decay.shape[3])
    state, turned = _scratch(space.scale.size, value_dim), _scratch(0, key_dim)
    for unit in range(first, stop):
        b, h = unit // heads, unit % heads
        group = h * groups // heads
        queries, keys = _head(q, b, group), _head(k, b, group)
        values, sums = _head(v, b, h), _head(outputs, b, h)
        _set(state, initial_state[b, h], False)
        writes, reads, outs = (keys, values), (queries, values), (keys, sums)
        _traverse(FORWARDS, lag, log_decay[b], h, resets[b], writes, reads, outs, state, turned, space)
        _finish(space)
        _multiply(state, space.scale, False)
        _get(state, final_state[b, h])
        if lag:
            _add_bonus(q[b], k[b], v[b], bonus[h], group, h, outputs[b])


@compiled
def _add_bonus(q, k, v, bonus, group, h, outputs):
    """Adds (q u k) v, the part of (2') that the state has no part in."""
    for t in range(v.shape[0]):
        query, key, value, output = q[t, group], k[t, group], v[t, h], outputs[t, h]
        gain = np.float32(0)
        for i in range(key.size):
            gain += query[i] * bonus[i] * key[i]
        for j in range(value.size):
            output[j] += gain * value[j]


@compiled
def _decay_gradient(q, k, dq, dk, decays, cuts, group, h, lag, running, d_decays):
    """Equation (7), in float64; ``running`` starts as the sum of dS_T S_T.

    It starts anew where nothing of the state before a token is left: the gradient there is exp(g) of the sum's size,
    and what rounding leaves of the sum instead would be multiplied by a g of -60 on its way to the parameters.
    """
    length, channels = d_decays.shape[0], d_decays.shape[2]
    for t in range(length - 1, -1, -1):
        if t + 1 < length and cuts[t + 1]:
            running[:] = 0
        for side in range(2):  # + q dq, then - k dk
            s, sign = (t + lag, 1.0) if side == 0 else (t, -1.0)
            if s == length:
                continue
            x, gradient = (q[s, group], dq[s, 0]) if side == 0 else (k[s, group], dk[s, 0])
            if channels > 1:
                for d in range(channels):
                    running[d] += sign * x[d] * gradient[d]
            else:
                product = np.float32(0)
                for d in range(x.size):
                    product += x[d] * gradient[d]
                running[0] += sign * product
        for d in range(channels):
            if decays[t, h, d] < -FORGOTTEN:
                running[d] = 0
            d_decays[t, h, d] = 0.0 if cuts[t] else running[d]  # a reset's decay meets a state that counts as zero


@compiled
def _add_own(q, k, v, d_outputs, cuts, group, h, lag, dq, dk):
    """Adds to dq and dk what a token's read-out owes to its own write, or with a bonus to the write just before it."""
    for t in range(v.shape[0] - lag):
        s = t + lag
        if lag == 1 and cuts[s]:
            continue
        value, error, query, key = v[t, h], d_outputs[s, h], q[s, group], k[t, group]
        d_query, d_key = dq[s, 0], dk[t, 0]
        product = np.float32(0)
        for j in range(value.size):
            product += value[j] * error[j]
        for i in range(key.size):
            d_query[i] += product * key[i]
        for i in range(key.size):
            d_key[i] += product * query[i]


@compiled
def _add_bonus_gradient(q, k, v, bonus, d_outputs, group, h, dq, dk, dv, d_bonus):
    """Adds the gradients of (q u k) v."""
    d_bonus[:] = 0
    for t in range(v.shape[0]):
        query, key, value, error = q[t, group], k[t, group], v[t, h], d_outputs[t, h]
        gain, d_gain = np.float32(0), np.float32(0)
        for i in range(key.size):
            gain += query[i] * bonus[i] * key[i]
        for j in range(value.size):
            d_gain += error[j] * value[j]
        for j in range(value.size):
            dv[t, h, j] += gain * error[j]
        d_query, d_key = dq[t, 0], dk[t, 0]
        for i in range(key.size):  # apart: LLVM vectorises a loop when it has few arrays to tell from each other
            d_query[i] += d_gain * bonus[i] * key[i]
        for i in range(key.size):
            d_key[i] += d_gain * bonus[i] * query[i]
        for i in range(key.size):
            d_bonus[i] += d_gain * query[i] * key[i]


@compiled
def _add_products(turned, d_final, running):
    """Adds the sum of dS_T S_T over V, or over K and V for one decay a head."""
    for i in range(d_final.shape[0]):
        total = 0.0
        for j in range(d_final.shape[1]):
            total += np.float64(turned[j, i]) * d_final[i, j]
        running[min(i, running.size - 1)] += total


@compiled
def _accumulate(total, copy, fresh, values):
    for t in range(total.shape[0]):
        row, source = total[t, copy], values[t, 0]
        if fresh:
            for c in range(row.size):
                row[c] = source[c]
        else:
            for c in range(row.size):
                row[c] += source[c]


@compiled
def backward(inputs, d_outputs, d_final, dq, dk, dv, d_log_decay, d_initial, d_bonus, first, stop):
    """Equations (4) to (7) for copies first to stop - 1, counted over the batch.

    The gradients of q and k are [B, T, copies, K]: each copy sums heads // copies heads, in order, so that no sum takes
    two threads. ``d_final`` is [B, H, 0, 0] where it is zero; ``d_bonus`` is [B, H or 0, K].
    """
    q, k, v, log_decay, initial_state, bonus, resets = inputs
    length, heads, value_dim = v.shape[1:]
    groups, key_dim = q.shape[2:]
    copies, channels, lag = dq.shape[2], log_decay.shape[3], min(bonus.shape[0], 1)
    space = _space(key_dim, value_dim, channels)
    state, turned = _scratch(space.scale.size, value_dim), _scratch(space.sum_values.shape[1], key_dim)
    empty, running = _scratch(0, value_dim), np.empty(channels)
    head_dq, head_dk = np.empty((1, length, 1, key_dim), np.float32), np.empty((1, length, 1, key_dim), np.float32)
    query_sums, key_sums = _head(head_dq, 0, 0), _head(head_dk, 0, 0)
    for unit in range(first, stop):
        b, copy = unit // copies, unit % copies
        decays, cuts = log_decay[b], resets[b]
        for h in range(copy * (heads // copies), (copy + 1) * (heads // copies)):
            group = h * groups // heads
            queries, keys = _head(q, b, group), _head(k, b, group)
            values, errors, sums = _head(v, b, h), _head(d_outputs, b, h), _head(dv, b, h)
            _set(turned, initial_state[b, h], True)
            writes, reads, outs = (keys, values), (queries, errors), (query_sums, sums)
            _traverse(FORWARDS, lag, decays, h, cuts, writes, reads, outs, empty, turned, space)  # (4)
            running[:] = 0
            if d_final.size:
                _finish(space)
                _multiply(turned, space.scale, True)
                _add_products(turned, d_final[b, h], running)
            _set(state, d_final[b, h], False)
            _set(turned, d_final[b, h], True)
            writes, reads, outs = (queries, errors), (keys, values), (key_sums, sums)
            _traverse(BACKWARDS, lag, decays, h, cuts, writes, reads, outs, state, turned, space)  # (5), (6)
            if lag == 0:  # with a bonus, the visit of token -1 has done so
                for d in range(channels):
                    space.sums[d] += decays[0, h, d]
                if cuts[0]:
                    state[:] = 0
            _finish(space)
            _multiply(state, space.scale, False)
            _get(state, d_initial[b, h])
            _decay_gradient(q[b], k[b], head_dq[0], head_dk[0], decays, cuts, group, h, lag, running, d_log_decay[b])
            _add_own(q[b], k[b], v[b], d_outputs[b], cuts, group, h, lag, head_dq[0], head_dk[0])
            if lag:
                _add_bonus_gradient(
                    q[b], k[b], v[b], bonus[h], d_outputs[b], group, h, head_dq[0], head_dk[0], dv[b], d_bonus[b, h]
                )
            fresh = h % (heads // copies) == 0
            _accumulate(dq[b], copy, fresh, head_dq[0])
            _accumulate(dk[b], copy, fresh, head_dk[0])
