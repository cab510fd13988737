"""The table of a repair, before it is drawn: what the terminal and the page both show of each model."""

from dataclasses import dataclass

import numpy as np

from everlong.records.diagnosis import Diagnosis, Excess
from everlong.records.repair import Repair, Row
from everlong.reports._results import mean_losses
from everlong.reports._words import NOT_JUDGED, Meaning, bucket_meaning, meaning_of, method_name


@dataclass(frozen=True)
class Line:
    """One comparison of one model: an excess for each range."""

    label: str
    excess: Excess

    @property
    def cells(self) -> tuple[tuple[float, float, float], ...]:
        """Mean and interval of each range."""
        return tuple(zip(self.excess.mean, self.excess.lower, self.excess.upper, strict=True))


@dataclass(frozen=True)
class Block:
    """One model: its comparisons and what they mean."""

    label: str
    name: str
    perplexity: float
    verdict: str
    lines: tuple[Line, ...]
    meanings: tuple[Meaning, ...]


@dataclass(frozen=True)
class Bucket:
    """One row of a diagnosis: the losses in a bucket and what their difference means."""

    start: int
    stop: int
    documents: int
    carried: float
    window: float
    best: float
    best_width: int | None
    mean: float
    lower: float
    upper: float
    meaning: Meaning


def legend(repair: Repair) -> tuple[tuple[str, str], ...]:
    """The terms of the table in plain words."""
    window, tolerance = f"{repair.context:,} tokens at most", f"the tolerance of {repair.tolerance:g} nats"
    return (
        (
            "excess",
            "the loss with the state carried from the document's beginning, minus the loss of a reference that has "
            "read a window only; the same targets. Above zero, reading on harms; below zero, it pays.",
        ),
        ("own window", f"the model itself, started afresh and shown the last {window} before the target."),
        ("own best", "the best of the model's own windows, of any width measured."),
        ("control", "the window of the zero control: the same training budget, every row started from zero."),
        ("control best", "the best of the control's windows, of any width measured."),
        (
            "means",
            f"harms: worse than the own window by more than {tolerance}. Pays: better than the best windows of the "
            f"model and of the control, and only that is a repair worth having. Both with the whole interval.",
        ),
        ("headroom", f"what the control gains by its best longer window; below {tolerance}, paying is untestable."),
    )


def repair_blocks(repair: Repair) -> tuple[Block, ...]:
    """A block a model."""
    return tuple(
        Block(
            label=row.label,
            name=method_name(row.label),
            perplexity=row.in_range_perplexity,
            verdict=row.verdict,
            lines=_lines(row),
            meanings=tuple(meaning_of(words) for words in row.meaning),
        )
        for row in repair.rows
    )


def diagnosis_buckets(diagnosis: Diagnosis) -> tuple[Bucket, ...]:
    """A row a bucket."""
    excess, verdict = diagnosis.excess, diagnosis.verdict
    means = {name: mean_losses(losses, diagnosis.targets) for name, losses in diagnosis.losses.items()}
    column = {bounds: i for i, bounds in enumerate(zip(diagnosis.bucket_starts, diagnosis.bucket_stops, strict=True))}

    def loss(policy: str, index: int) -> float:
        bounds = excess.starts[index], excess.stops[index]
        return float(means[policy][column[bounds]]) if policy in means and bounds in column else float("nan")

    def best(index: int) -> tuple[float, int | None]:
        found = [(loss(f"window:{width}", index), width) for width in diagnosis.window_widths]
        found = [(value, width) for value, width in found if np.isfinite(value)]
        return min(found, default=(float("nan"), None))

    return tuple(
        Bucket(
            *(excess.starts[i], excess.stops[i], excess.documents[i]),
            *(loss("carry", i), loss(f"window:{diagnosis.context}", i), *best(i)),
            *(excess.mean[i], excess.lower[i], excess.upper[i]),
            bucket_meaning(excess.lower[i], excess.upper[i], verdict.tolerance)
            if excess.documents[i] >= verdict.fewest_documents
            else NOT_JUDGED,
        )
        for i in range(len(excess.starts))
    )


def _lines(row: Row) -> tuple[Line, ...]:
    own = (Line("own window", row.own), Line("own best", row.own_best))
    if np.array_equal(row.own.mean, row.control.mean, equal_nan=True):
        return own  # before repair, and the control itself: their own window is the control's
    return (*own, Line("control", row.control), Line("control best", row.control_best))
