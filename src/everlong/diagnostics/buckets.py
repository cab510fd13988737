"""Ranges of positions. A bucket (start, stop] holds the positions start < t <= stop; position t has t tokens before it."""

from itertools import pairwise

import numpy as np

Buckets = list[tuple[int, int]]


def doubling_buckets(context: int, length: int) -> Buckets:
    """(T/2, T], where carrying and restarting are the same by construction, then (T, 2T], (2T, 4T], ... to the length."""
    edges = [context // 2, context]
    while edges[-1] < length:
        edges.append(min(2 * edges[-1], length))
    return list(pairwise(edges))


def table_ranges(buckets: Buckets) -> list[list[int]]:
    """Groups of doubling buckets, by index, for a table: pairs beyond the training length, the last perhaps alone."""
    beyond = list(range(1, len(buckets)))
    return [beyond[i : i + 2] for i in range(0, len(beyond), 2)]


def curve_buckets(length: int, per_octave: int = 4) -> Buckets:
    """Log-spaced buckets from position 1 on, for curves."""
    edges = [0]
    for i in range(per_octave * int(np.ceil(np.log2(length)) + 1)):
        edge = min(length, max(edges[-1] + 1, round(2 ** (i / per_octave))))
        edges.append(edge)
        if edge == length:
            break
    return list(pairwise(edges))
