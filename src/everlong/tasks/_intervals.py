"""Confidence intervals of scores over examples, the independent units."""

import math

import numpy as np
from scipy import stats


def wilson(successes: float, count: int, confidence: float) -> tuple[float, float]:
    """Wilson's score interval of a share (Wilson 1927): never empty, within 0 and 1."""
    z = float(stats.norm.ppf(0.5 + confidence / 2))
    share = successes / count
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return max(0.0, min(middle - half, share)), min(1.0, max(middle + half, share))  # by rounding it may miss the share


def error_variance(values: np.ndarray, least: float) -> float:
    """Of the mean over examples, each between ``least`` and 1: as if there were one more at either end.

    So it is above zero where all are alike, which of few examples says little (Bonett & Price 2012, of differences).
    """
    return float(np.var([*values, least, 1.0], ddof=1)) / (len(values) + 2)


def interval(values: np.ndarray, confidence: float, *, bounded: bool = True) -> tuple[float, float]:
    """Of the mean over examples: Wilson's where each is 0 or 1, else Student's t; within 0 and 1 if ``bounded``."""
    if bounded and np.isin(values, (0.0, 1.0)).all():
        return wilson(float(values.sum()), len(values), confidence)
    half = float(stats.t.ppf(0.5 + confidence / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values)))
    mean = float(values.mean())
    return (max(0.0, mean - half), min(1.0, mean + half)) if bounded else (mean - half, mean + half)
