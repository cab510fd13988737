"""Spearman's rank correlation, which is not-a-number in silence where there is nothing to rank."""

import numpy as np
from jaxtyping import Float
from scipy.stats import rankdata


def rank_correlation(one: Float[np.ndarray, " N"], other: Float[np.ndarray, " N"]) -> float:
    """Of two series; not-a-number where either does not vary."""
    varies = np.ptp(one) > 0 and np.ptp(other) > 0
    return float(np.corrcoef(rankdata(one), rankdata(other))[0, 1]) if varies else float("nan")
