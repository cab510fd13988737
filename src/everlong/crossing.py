"""Where the mean excess passes the tolerance: an estimate, where the verdict's break is a test.

A verdict says from where on harm is sure, and so the farther out the fewer documents were read. What predicts a break
is to be held against where the mean passes the tolerance, which more documents make surer but do not move.
"""

from dataclasses import dataclass

import numpy as np

from everlong.records.diagnosis import Diagnosis

RESAMPLES = 4000


@dataclass(frozen=True)
class Crossing:
    """Tokens read where the mean excess passes the tolerance, with a percentile bootstrap over documents.

    Attributes:
        position: None: nowhere up to the diagnosed length.
        lower: the interval's near end; None: in nearly all resamples nowhere.
        upper: its far end; None: in more resamples than the confidence leaves, nowhere.
    """

    position: float | None
    lower: float | None
    upper: float | None

    def __str__(self) -> str:
        low, middle, high = (f"{x:,.0f}" if x else "none" for x in (self.lower, self.position, self.upper))
        return f"{middle} [{low}, {high}]"


def crossing(diagnosis: Diagnosis) -> Crossing:
    """Where the excess over the own window passes the verdict's tolerance, between T and the middles of the buckets.

    The first of two neighbouring buckets above the tolerance counts, as in the verdict; positions are interpolated on
    a logarithmic axis. Documents that do not reach the length take part in the buckets that they reach.
    """
    excess = diagnosis.losses["carry"] - diagnosis.losses[f"window:{diagnosis.context}"]
    middles = np.sqrt(np.array(diagnosis.bucket_starts, dtype=float) * np.array(diagnosis.bucket_stops))
    middles[0] = diagnosis.context  # up to there the excess is zero by construction
    documents, tolerance = len(excess), diagnosis.verdict.tolerance
    drawn = np.random.default_rng([diagnosis.seed, 4]).integers(0, documents, (RESAMPLES, documents))
    found = _passes(_means(np.concatenate([np.arange(documents)[None], drawn]), excess), middles, tolerance)
    tail = (1 - diagnosis.verdict.confidence) / 2
    bounds = np.quantile(found[1:], [tail, 1 - tail], method="nearest")
    return Crossing(*(float(x) if np.isfinite(x) else None for x in (found[0], *bounds)))


def _means(drawn: np.ndarray, excess: np.ndarray) -> np.ndarray:
    """[resamples, buckets], over the documents that reach a bucket; not-a-number where none does."""
    present = np.isfinite(excess)
    weights = np.stack([np.bincount(row, minlength=len(excess)) for row in drawn]).astype(float)
    with np.errstate(invalid="ignore"):
        return (weights @ np.where(present, excess, 0.0)) / (weights @ present)


def _passes(means: np.ndarray, middles: np.ndarray, tolerance: float) -> np.ndarray:
    """For each row of means the position where it passes the tolerance for two buckets, infinite: nowhere."""
    above = means > tolerance  # never so in the first bucket, where the excess is zero by construction
    twice = above[:, :-1] & above[:, 1:]
    first = np.where(twice.any(axis=1), twice.argmax(axis=1), 0)
    rows, before = np.arange(len(means)), np.maximum(first - 1, 0)
    low, high = means[rows, before], means[rows, first]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (tolerance - low) / (high - low)
        position = middles[before] * (middles[first] / middles[before]) ** share
    return np.where(first > 0, position, np.inf)
