"""Models beside each other: each against its own windows and against the windows of the zero-start control."""

import numpy as np

from everlong.diagnostics.buckets import Buckets, table_ranges
from everlong.diagnostics.paired_excess import merge_buckets, paired_excess
from everlong.errors import EverlongError
from everlong.records.diagnosis import Diagnosis, Excess
from everlong.records.repair import Meaning, Row

BEFORE, CONTROL = "before", "zero"  # labels of the model as it came, and of the zero-start control
LEAST_HEADROOM = 0.02  # nats: where a longer window gains less, whether reading on pays cannot be tested

HARMS: Meaning = "reading on harms"
NO_BETTER: Meaning = "no better than restarting"
PAYS: Meaning = "pays"
UNDECIDED: Meaning = "undecided"


def compare(diagnosis: Diagnosis, control: Diagnosis) -> Row:
    """A model's row in the table of a repair.

    Args:
        diagnosis: of the model.
        control: of the zero-start control at the same budget, over the same targets (before repair: the model's own).

    Raises:
        EverlongError: the two did not read the same targets.
    """
    same = diagnosis.documents == control.documents and np.array_equal(diagnosis.targets, control.targets)
    if not same or diagnosis.context != control.context:
        raise EverlongError(f"the diagnoses {diagnosis.label!r} and {control.label!r} did not read the same targets")
    carried, targets, ranges = _by_range(diagnosis, "carry")

    def against(other: Diagnosis, whose: str, widths: tuple[int, ...]) -> Excess:
        reference, words = _best_window(other, widths)
        return paired_excess(
            carried,
            reference,
            targets,
            ranges,
            name=f"{whose} {words}",
            confidence=diagnosis.excess.confidence,
            seed=diagnosis.seed,
        )

    whose = "its own" if control is diagnosis else f"the {control.label} control's"
    training, every = (diagnosis.context,), diagnosis.window_widths
    own, own_best = against(diagnosis, "its own", training), against(diagnosis, "its own", every)
    return Row(
        label=diagnosis.label,
        in_range_perplexity=diagnosis.in_range_perplexity,
        own=own,
        own_best=own_best,
        control=against(control, whose, training),
        control_best=(control_best := against(control, whose, every)),
        meaning=tuple(
            _meaning(own, own_best, control_best, index, diagnosis.verdict.tolerance) for index in range(len(ranges))
        ),
        verdict=diagnosis.verdict.short,
    )


def headroom(control: Diagnosis) -> tuple[float, ...]:
    """For each range of the table, nats that the best longer window gains over the window of the training length."""
    longer = tuple(width for width in control.window_widths if width > control.context)
    gain = _by_range(control, f"window:{control.context}")[0] - _best_window(control, longer)[0]
    return tuple(map(float, np.nanmean(gain, axis=0)))


def _meaning(own: Excess, own_best: Excess, control_best: Excess, index: int, tolerance: float) -> Meaning:
    if own.lower[index] > tolerance:
        return HARMS
    if own_best.upper[index] < 0 and control_best.upper[index] < 0:
        return PAYS
    if own.upper[index] <= tolerance:
        return NO_BETTER
    return UNDECIDED


def _by_range(diagnosis: Diagnosis, policy: str) -> tuple[np.ndarray, np.ndarray, Buckets]:
    buckets = list(zip(diagnosis.bucket_starts, diagnosis.bucket_stops, strict=True))
    return merge_buckets(diagnosis.losses[policy], diagnosis.targets, buckets, table_ranges(buckets))


def _best_window(diagnosis: Diagnosis, widths: tuple[int, ...]) -> tuple[np.ndarray, str]:
    """Losses [documents, ranges] of the window that is best on average in each range, and the windows in words."""
    candidates = np.stack([_by_range(diagnosis, f"window:{width}")[0] for width in widths])
    best = np.nanargmin(np.nanmean(candidates, axis=1), axis=0)
    chosen = np.stack([candidates[width, :, index] for index, width in enumerate(best)], axis=1)
    used = sorted({widths[width] for width in best})
    size = f"{used[0]}" if len(used) == 1 else f"{used[0]} to {used[-1]}"
    return chosen, f"window of {size} tokens" if len(widths) == 1 else f"best window ({size} tokens)"
