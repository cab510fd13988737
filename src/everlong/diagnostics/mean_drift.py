"""Whether the drift of the document-independent mean state carries the harm: the policy recentre as a test of causes.

Every T tokens E[S_t] - E[S_T] is subtracted from the state (``everlong.policies.recentre``). What it leaves of the
excess loss is not the mean's doing. The documents are halved, and each half is calibrated on the other.
"""

import numpy as np

from everlong.diagnostics._estimates import estimate, jackknife
from everlong.diagnostics._examination import Examination
from everlong.diagnostics._panel import Panel, mean_by_bucket, sample_targets
from everlong.diagnostics.buckets import doubling_buckets
from everlong.diagnostics.config import MeasuresConfig
from everlong.errors import EverlongError
from everlong.policies.carry import Carry
from everlong.policies.recentre import Recentre
from everlong.policies.window import Window
from everlong.reading import losses, tokens_to_read
from everlong.records.measurements import Estimate, MeanDrift


def mean_drift(examination: Examination, config: MeasuresConfig) -> MeanDrift:
    """Reads the documents that are as long as the length under three policies; see the module."""
    rows, context, length = examination.full_rows, examination.context, examination.length
    documents = len(rows)
    if documents < 4:
        raise EverlongError(f"recentring needs 4 documents of --max-length {length}, there are {documents}")
    buckets = doubling_buckets(context, length)
    panel = Panel(tuple(map(str, range(documents))), rows, (0,) * documents)
    blocks = max(1, config.memory_targets // context)
    sample = sample_targets(panel, buckets, context=context, blocks=blocks, seed=examination.seed)
    spans = [span for span, _ in sample]
    policies = (Carry(), Window(context), Recentre(context))
    total = sum(tokens_to_read(policy, spans) for policy in policies) + length * documents
    tables = []
    with examination.work("mean drift", total) as work:
        for policy in policies[:2]:
            found = losses(examination.model, rows, policy, spans, advance=work.advance)
            tables.append(mean_by_bucket(found, sample, documents, len(buckets)))
        halves: dict[int, np.ndarray] = {}
        for half in (0, 1):
            mine = [index for index, (document, _, _) in enumerate(spans) if document % 2 == half]
            others = [row for document, row in enumerate(rows) if document % 2 != half]
            nats = losses(
                examination.model,
                rows,
                policies[2],
                [spans[index] for index in mine],
                calibration=others,
                advance=work.advance,
            )
            work.advance(length * len(others))
            halves |= dict(zip(mine, nats, strict=True))
        found = [halves[index] for index in range(len(spans))]
        tables.append(mean_by_bucket(found, sample, documents, len(buckets)))
    carried, window, recentred = tables

    def sure(values: np.ndarray) -> Estimate:
        return estimate(values, confidence=examination.confidence, seed=examination.seed)

    def share(kept: np.ndarray) -> np.ndarray:
        excess = (carried - window)[kept].mean(axis=0)
        taken = (carried - recentred)[kept].mean(axis=0)
        return np.divide(taken, excess, out=np.full(len(excess), np.nan), where=excess != 0)

    return MeanDrift(
        basis=examination.basis(work, full_only=True),
        starts=tuple(start for start, _ in buckets),
        stops=tuple(stop for _, stop in buckets),
        carried=sure(carried - window),
        recentred=sure(recentred - window),
        share_taken=sure(jackknife(share, documents)),
        calibration_documents=documents // 2,
    )
