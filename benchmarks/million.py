"""`python -m benchmarks.million ARCHITECTURE THREADS`: losses of one row of a million tokens; prints JSON.

The row is read as every evaluation reads (``everlong.reading.losses``). On the way, at ten places, a row of 16,384
tokens of its own is read, so that both are timed within the same seconds.
"""

import json
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks import shapes
from everlong.policies.carry import Carry
from everlong.reading import losses

LENGTH, BLOCK, PLACES = 1_000_000, 16_384, 10


def main(architecture: str, threads: int) -> None:
    """Reads, and prints what it took."""
    torch.set_num_threads(threads)
    model = shapes.model(shapes.TINY[architecture], perturbed=True).eval()
    row = np.random.default_rng(0).integers(0, 256, LENGTH + 1, dtype=np.uint8)

    def read(length: int, advance: Callable[[int], None] | None = None) -> float:
        start = time.perf_counter()
        losses(model, [row[: length + 1]], Carry(), [(0, 1, length)], advance=advance)
        return time.perf_counter() - start

    read(BLOCK)  # compiles
    read(BLOCK)
    peak_short = peak()
    clock = _Clock(lambda: read(BLOCK))
    read(LENGTH, clock.advance)
    found = {
        "length": LENGTH,
        "positions": clock.positions,
        "within": clock.within,
        "alone": clock.alone,
        "peak_short": peak_short,
        "peak_long": peak(),
    }
    print(json.dumps(found))


class _Clock:
    """Told the tokens read, times a block of them at each place, and a row of its own right after it."""

    def __init__(self, alone: Callable[[], float]):
        self._read_alone = alone
        self._done = 0
        self._from: tuple[int, float] | None = None  # tokens and time at the beginning of the block that is timed
        self._starts = [BLOCK * round(n * (LENGTH // BLOCK - 2) / PLACES) for n in range(1, PLACES + 1)]
        self.positions: list[int] = []
        self.within: list[float] = []
        self.alone: list[float] = []

    def advance(self, tokens: int) -> None:
        """A piece has been read."""
        self._done += tokens
        place = len(self.positions)
        if place == len(self._starts):
            return
        if self._from is None:
            if self._done >= self._starts[place]:
                self._from = (self._done, time.perf_counter())
        elif self._done >= self._from[0] + BLOCK:  # more where a block is no multiple of what is read at once
            seconds = time.perf_counter() - self._from[1]
            self.within.append(seconds * BLOCK / (self._done - self._from[0]))
            self.alone.append(self._read_alone())
            self.positions.append(self._from[0])
            self._from = None


def peak() -> int:
    """Bytes of memory that this process has had at most."""
    scale = 1 if sys.platform == "darwin" else 1024
    return scale * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
