"""Ranges of positions. A bucket (start, stop] holds positions start < t <= stop; position t has t tokens before it."""

from itertools import pairwise

import numpy as np

Buckets = list[tuple[int, int]]
NARROWEST_OCTAVE = 8  # the best of a few single positions would be best by chance


def doubling_buckets(context: int, length: int) -> Buckets:
    """(T/2, T], where carrying equals restarting by construction, then (T, 2T], (2T, 4T], ... up to the length."""
    edges = [context // 2, context]
    while edges[-1] < length:
        edges.append(min(2 * edges[-1], length))
    return list(pairwise(edges))


def octaves(context: int, length: int) -> Buckets:
    """The doubling buckets, and before them octaves of the training range down to NARROWEST_OCTAVE positions."""
    buckets = doubling_buckets(context, length)
    while buckets[0][0] // 2 >= NARROWEST_OCTAVE:
        start = buckets[0][0]
        buckets.insert(0, (start // 2, start))
    return buckets


def table_ranges(buckets: Buckets) -> list[list[int]]:
    """Groups of doubling buckets, by index, for a table: pairs beyond the training length, the last perhaps alone."""
    beyond = list(range(1, len(buckets)))
    return [beyond[i : i + 2] for i in range(0, len(beyond), 2)]


def curve_buckets(length: int) -> Buckets:
    """Log-spaced buckets from position 1 on, four an octave, for curves."""
    edges = [0]
    for i in range(4 * int(np.ceil(np.log2(length)) + 1)):
        edge = min(length, max(edges[-1] + 1, round(2 ** (i / 4))))
        edges.append(edge)
        if edge == length:
            break
    return list(pairwise(edges))
