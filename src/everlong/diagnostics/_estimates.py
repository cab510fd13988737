"""From values by document to means with intervals; documents are the units."""

from collections.abc import Callable

import numpy as np
from scipy import stats

from everlong.diagnostics._intervals import simultaneous_intervals
from everlong.records.measurements import Estimate


def estimate(values: np.ndarray, *, confidence: float, seed: int) -> Estimate:
    """Means of [documents, ...] over documents, with intervals simultaneous over all that follows the first axis."""
    found = simultaneous_intervals(values.reshape(len(values), -1), confidence=confidence, seed=seed)
    shaped = (part.reshape(values.shape[1:]) for part in (found.mean, found.lower, found.upper, found.documents))
    mean, lower, upper, documents = shaped
    return Estimate(mean=mean, lower=lower, upper=upper, documents=documents, interval=found.method)


def estimate_each(values: np.ndarray, *, confidence: float) -> Estimate:
    """The same with an interval for each column alone: for tables too wide to be judged at once."""
    present = np.isfinite(values)
    count = present.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.where(present, values, 0).sum(axis=0) / np.where(count > 0, count, np.nan)
        squares = (np.where(present, values - mean, 0) ** 2).sum(axis=0)
        error = np.sqrt(squares / np.where(count > 1, count - 1, np.nan) / count)
    width = stats.t.ppf((1 + confidence) / 2, np.maximum(count - 1, 1)) * error
    return Estimate(
        mean=mean.astype(np.float32),
        lower=(mean - width).astype(np.float32),
        upper=(mean + width).astype(np.float32),
        documents=count,
        interval="Student's t over documents, each alone",
    )


def jackknife(statistic: Callable[[np.ndarray], np.ndarray], documents: int) -> np.ndarray:
    """Pseudo-values [documents, ...] of a statistic that is no mean over documents; their mean corrects its bias.

    Args:
        statistic: of the documents whose indices it is given.
        documents: how many there are, two at least.
    """
    every = np.arange(documents)
    whole = statistic(every)
    return np.stack([documents * whole - (documents - 1) * statistic(np.delete(every, i)) for i in every])
