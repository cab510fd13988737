"""Paired excess loss: over the same targets, the loss with the carried state minus the loss under another policy.

It asks what position-wise perplexity cannot: whether the state that the model carries is worth more or less than
starting afresh. Above zero reading on harms; at zero it is no better than restarting; below zero what was carried
helps.
"""

import numpy as np

from everlong.diagnostics._intervals import simultaneous_intervals
from everlong.diagnostics.buckets import Buckets
from everlong.records.diagnosis import Excess


def paired_excess(
    carried: np.ndarray,
    reference: np.ndarray,
    targets: np.ndarray,
    buckets: Buckets,
    *,
    name: str,
    confidence: float,
    seed: int,
) -> Excess:
    """Excess of one policy's losses over another's.

    Args:
        carried: [documents, buckets], mean nats over the targets, not-a-number where there are none.
        reference: the same under the other policy, over the same targets.
        targets: [documents, buckets], number of targets.
        buckets: positions of the columns.
        name: what the reference is, in words.
        confidence: of the simultaneous intervals.
        seed: of their bootstrap.
    """
    intervals = simultaneous_intervals(carried - reference, confidence=confidence, seed=seed)
    return Excess(
        reference=name,
        starts=tuple(start for start, _ in buckets),
        stops=tuple(stop for _, stop in buckets),
        mean=tuple(map(float, intervals.mean)),
        lower=tuple(map(float, intervals.lower)),
        upper=tuple(map(float, intervals.upper)),
        documents=tuple(map(int, intervals.documents)),
        targets=tuple(int(n) for n in targets.sum(axis=0)),
        confidence=confidence,
        interval=intervals.method,
    )


def merge_buckets(
    losses: np.ndarray, targets: np.ndarray, buckets: Buckets, groups: list[list[int]]
) -> tuple[np.ndarray, np.ndarray, Buckets]:
    """Joins neighbouring buckets, weighting each document's means by the buckets' widths, as if over all positions.

    Returns:
        [documents, groups] losses, the number of targets, and the groups' positions.
    """
    merged, counts = [], []
    for group in groups:
        widths = np.array([buckets[i][1] - buckets[i][0] for i in group], dtype=float)
        merged.append(losses[:, group] @ (widths / widths.sum()))  # not-a-number where a document reaches only a part
        counts.append(np.where(np.isfinite(merged[-1]), targets[:, group].sum(axis=1), 0))
    positions = [(buckets[group[0]][0], buckets[group[-1]][1]) for group in groups]
    return np.stack(merged, axis=1), np.stack(counts, axis=1), positions
