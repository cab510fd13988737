"""Simultaneous confidence intervals of means over documents: the documents are the independent units, whatever they hold."""

from dataclasses import dataclass

import numpy as np
from scipy import stats

BOOTSTRAP_DOCUMENTS = 30  # below, the bootstrap's intervals are too narrow: Student's t, Bonferroni over the buckets
RESAMPLES = 4000


@dataclass(frozen=True)
class Intervals:
    """Means over documents with simultaneous intervals, one a column."""

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    documents: np.ndarray
    method: str


def simultaneous_intervals(values: np.ndarray, *, confidence: float, seed: int) -> Intervals:
    """Intervals that hold for all columns at once with the given confidence.

    Studentised bootstrap over documents with the largest |t| over the columns (max-t); under 30 documents in any column,
    Student's t with Bonferroni's correction.

    Args:
        values: [documents, columns], not-a-number where a document does not reach a column.
        confidence: simultaneous coverage.
        seed: of the resampling.
    """
    documents = np.isfinite(values).sum(axis=0)
    judged = documents >= 2
    mean, error = _mean_and_error(values[None])
    mean, error = mean[0], error[0]
    usable = judged & (error > 0)
    columns = max(1, int(judged.sum()))
    if usable.any() and documents[judged].min() >= BOOTSTRAP_DOCUMENTS:
        critical = np.full(len(mean), _largest_t(values[:, usable], confidence, seed))
        method = (
            f"studentised bootstrap over documents, simultaneous over {columns} ranges (max-t), {RESAMPLES} resamples"
        )
    else:
        tail = (1 - confidence) / 2 / columns
        critical = np.array([stats.t.ppf(1 - tail, max(n - 1, 1)) for n in documents])
        method = f"Student's t over documents, simultaneous over {columns} ranges (Bonferroni)"
    width = np.where(judged, critical * error, np.nan)
    return Intervals(mean, mean - width, mean + width, documents, method)


def _largest_t(values: np.ndarray, confidence: float, seed: int) -> float:
    generator = np.random.default_rng(seed)
    center = np.nanmean(values, axis=0)
    largest = []
    for _ in range(RESAMPLES // 200):
        resample = values[generator.integers(0, len(values), (200, len(values)))]
        mean, error = _mean_and_error(resample)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.abs(mean - center) / error
        largest.append(np.nanmax(np.where(np.isfinite(t), t, np.nan), axis=1))
    return float(np.quantile(np.concatenate(largest), confidence))


def _mean_and_error(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over the documents' axis of [resamples, documents, columns]."""
    present = np.isfinite(values)
    count = present.sum(axis=1)
    filled = np.where(present, values, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = filled.sum(axis=1) / np.where(count > 0, count, np.nan)
        squares = (np.where(present, values - mean[:, None], 0.0) ** 2).sum(axis=1)
        error = np.sqrt(squares / np.where(count > 1, count - 1, np.nan) / count)
    return mean, error
