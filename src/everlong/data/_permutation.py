"""Seeded shuffling that gives the same order on every machine and with every version of numpy."""

import numpy as np

from everlong.errors import EverlongError


def permutation(count: int, *seed: int) -> np.ndarray:
    """A random order of ``range(count)``, [count] int64, that depends on nothing but the numbers in ``seed``.

    numpy keeps the raw stream of a bit generator for ever, but not what `Generator.permutation` makes of it; so the raw
    numbers are sorted.
    """
    if min(seed) < 0:
        raise EverlongError(f"seed {min(seed)} is negative: give 0 or more")
    keys = np.random.Philox(np.random.SeedSequence(seed)).random_raw(count)
    return np.argsort(keys, kind="stable")
