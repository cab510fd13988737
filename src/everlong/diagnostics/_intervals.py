"""Simultaneous confidence intervals of means over the independent units: documents, or bases of an experiment."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

BOOTSTRAP_DOCUMENTS = 30  # below, the bootstrap's intervals are too narrow: Student's t, Bonferroni over the buckets
RESAMPLES = 4000
NEGLIGIBLE = 1e-6  # an error of rounding alone: the column is equal by construction and takes no part
ROUNDING = 1e-12  # a sum of squares below this share of its terms is zero but for rounding


@dataclass(frozen=True)
class Intervals:
    """Means over documents with simultaneous intervals, one a column."""

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    documents: np.ndarray
    method: str


def simultaneous_intervals(values: np.ndarray, *, confidence: float, seed: int, units: str = "documents") -> Intervals:
    """Intervals that hold for all columns at once with the given confidence.

    Studentised bootstrap over documents with the largest |t| over the columns (max-t); where a column has fewer than
    30 documents, Student's t with Bonferroni's correction.

    Args:
        values: [documents, columns], not-a-number where a document does not reach a column.
        confidence: simultaneous coverage.
        seed: of the resampling.
        units: what they are, in words.
    """
    documents = np.isfinite(values).sum(axis=0)
    judged = documents >= 2
    mean, error = _mean_and_error(values)
    usable = judged & (error > NEGLIGIBLE)
    columns = max(1, int(usable.sum()))
    if usable.any() and documents[judged].min() >= BOOTSTRAP_DOCUMENTS:
        critical = np.full(len(mean), _largest_t(values[:, usable], confidence, seed))
        method = (
            f"studentised bootstrap over {units}, simultaneous over {columns} ranges (max-t), {RESAMPLES} resamples"
        )
    else:
        tail = (1 - confidence) / 2 / columns
        critical = np.array([stats.t.ppf(1 - tail, max(n - 1, 1)) for n in documents])
        method = f"Student's t over {units}, simultaneous over {columns} ranges (Bonferroni)"
    width = np.where(judged, critical * error, np.nan)
    return Intervals(mean, mean - width, mean + width, documents, method)


def _largest_t(values: np.ndarray, confidence: float, seed: int) -> float:
    """The quantile at ``confidence`` of the largest |t| over the columns, over resamples of the documents.

    A resample is a count for each document: the sums of all resamples are products with one [R, documents] matrix.
    """
    documents = len(values)
    draws = np.random.default_rng(seed).multinomial(documents, np.full(documents, 1 / documents), size=RESAMPLES)
    weights, present = draws.astype(float), np.isfinite(values)
    offsets = np.where(present, values - np.nanmean(values, axis=0), 0.0)  # small numbers: squares lose no digits
    count, total, squares = weights @ present, weights @ offsets, weights @ offsets**2
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / count
        spread = squares - count * mean**2
        spread = np.where(spread > ROUNDING * squares, spread, np.nan)  # one value only: a resample without a t
        t = np.abs(mean) / np.sqrt(spread / (count - 1) / count)
    return float(np.quantile(np.fmax.reduce(t, axis=1), confidence))


def _mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over documents, a column each."""
    present = np.isfinite(values)
    count = present.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(present, values, 0.0).sum(axis=0) / np.where(count > 0, count, np.nan)
        squares = (np.where(present, values - mean, 0.0) ** 2).sum(axis=0)
        error = np.sqrt(squares / np.where(count > 1, count - 1, np.nan) / count)
    return mean, error
