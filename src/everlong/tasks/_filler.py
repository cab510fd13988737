"""Filler: one fixed run of short sentences, repeated to any number of tokens."""

import numpy as np


def filler(run: np.ndarray, count: int) -> np.ndarray:
    """``count`` tokens of a run that is repeated, so aligned that they end with the run's end: with a full stop."""
    return run[np.arange(-count, 0) % len(run)]
