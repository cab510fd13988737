"""Draws that depend on (seed, step, global row) and on nothing else: not on the processes, not on a resume."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from everlong.errors import EverlongError

STREAM = 0x6576_6572_6C6F_6E67  # keeps these draws apart from any other use of Philox with the same seed


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
