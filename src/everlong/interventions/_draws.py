"""Draws that depend on (seed, step, global row) and on nothing else: not on the processes, not on a resume."""

import math

import numpy as np
import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor

from everlong.errors import EverlongError

STREAM = 0x6576_6572_6C6F_6E67  # keeps these draws apart from any other use of Philox with the same seed
NOISE, FACTORS, TURNS, SIGNS = 1, 2, 3, 4  # the last word of the counter, where ``uniform`` has 0


def check_seed(seed: int) -> int:
    """The seed, if it can be one."""
    if not 0 <= seed < 1 << 64:
        raise EverlongError(f"seed is {seed}; it must be at least 0 and below 2 to the 64")
    return seed


def uniform(seed: int, step: int, rows: Int[Tensor, " B"]) -> Float[Tensor, " B"]:
    """One number of [0, 1) a row, in float64 on the CPU.

    Philox encrypts a counter (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). The counter is made
    of the row and the step, the key of the seed; each value of the counter gives four words, of which one is taken.
    """
    first, last = int(rows.min()), int(rows.max())
    counter = np.array([first, step, 0, 0], dtype=np.uint64)
    key = np.array([seed, STREAM], dtype=np.uint64)
    words = np.random.Philox(key=key, counter=counter).random_raw(4 * (last - first + 1))[::4]
    return torch.from_numpy((words >> np.uint64(11)) * 2.0**-53)[rows - first]


def normal(
    seed: int, step: int, rows: Int[Tensor, " B"], count: int, *, stream: int = NOISE
) -> Float[Tensor, "B count"]:
    """``count`` numbers of N(0, 1) a row, in float32 on the CPU, within 5.9 of zero.

    Box and Muller's pairs of Philox words. Each row is made on its own, from a counter in which the row stands, so that
    its numbers are the same to the bit whichever rows are made beside it. The last word of the counter is the stream,
    where ``uniform`` has 0, so that no two streams ever share a word.
    """
    pairs = -(-count // 2)
    drawn = torch.empty(len(rows), 2 * pairs)
    key = np.array([seed, STREAM], dtype=np.uint64)
    for place, row in enumerate(rows.tolist()):
        words = np.random.Philox(key=key, counter=np.array([0, step, row, stream], dtype=np.uint64)).random_raw(pairs)
        halves = (words.view(np.uint32) >> np.uint32(8)).reshape(pairs, 2)  # 24 bits: what a float32 can hold
        uniforms = (torch.from_numpy(halves.astype(np.float32)) + 0.5) * 2.0**-24
        radius = (-2 * uniforms[:, 0].log()).sqrt()
        angle = 2 * math.pi * uniforms[:, 1]
        drawn[place, :pairs], drawn[place, pairs:] = radius * angle.cos(), radius * angle.sin()
    return drawn[:, :count]


def turns(seed: int, step: int, place: int, count: int, rows: int) -> Int[Tensor, " count"]:
    """``count`` numbers of 0 to ``rows`` - 1; ``place`` tells apart what is drawn in one step."""
    counter = np.array([0, step, place, TURNS], dtype=np.uint64)
    words = np.random.Philox(key=np.array([seed, STREAM], dtype=np.uint64), counter=counter).random_raw(count)
    return torch.from_numpy((words % np.uint64(rows)).astype(np.int64))


def signs(seed: int, place: int, count: int) -> Int8[Tensor, " count"]:
    """``count`` numbers of -1 and 1, the same in all steps; ``place`` tells apart what is drawn for one seed."""
    counter = np.array([0, 0, place, SIGNS], dtype=np.uint64)
    words = np.random.Philox(key=np.array([seed, STREAM], dtype=np.uint64), counter=counter).random_raw(-(-count // 64))
    bits = np.unpackbits(words.view(np.uint8), count=count, bitorder="little")
    return torch.from_numpy(bits.astype(np.int8) * 2 - 1)
