"""Arms over several bases: bases, not seeds, are the replicates, and the arms of one base are paired."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from everlong.diagnostics._intervals import Intervals, simultaneous_intervals
from everlong.diagnostics.comparison import BEFORE, CONTROL, HARMS
from everlong.errors import EverlongError
from everlong.records.experiment import Contrast, Experiment, ExperimentArm, MeanOverBases
from everlong.records.repair import Repair

REPAIRED = 0.9  # share of the excess that is gone
UNITS = "bases"


@dataclass(frozen=True)
class _Measured:
    """An arm's excess and whether it surely harms [bases, seeds, ranges], and perplexity in range [bases, seeds]."""

    excess: np.ndarray
    harms: np.ndarray
    perplexity: np.ndarray

    @property
    def of_bases(self) -> np.ndarray:
        """The excess [bases, ranges], the seeds of a base averaged."""
        return self.excess.mean(axis=1)


def over_bases(
    repairs: Sequence[Sequence[Repair]],
    *,
    bases: Sequence[str],
    seeds: Sequence[int],
    runs: Sequence[str],
    seconds: dict[str, float],
) -> Experiment:
    """The table of an experiment.

    Args:
        repairs: for each base, one for each seed.
        bases: names of the models.
        seeds: of the repairs of each base.
        runs: folders of the repairs, base by base.
        seconds: phase -> wall-clock seconds.

    Raises:
        EverlongError: the repairs have not the same arms and ranges.
    """
    first = repairs[0][0]
    labels, own = tuple(row.label for row in first.rows), first.rows[0].own
    for repair in (repair for of_base in repairs for repair in of_base):
        if tuple(row.label for row in repair.rows) != labels or repair.rows[0].own.stops != own.stops:
            raise EverlongError("the repairs of the bases have not the same arms and ranges, and cannot be compared")
    measured = {label: _measure(repairs, place) for place, label in enumerate(labels)}
    harmed = np.asarray(measured[BEFORE].harms.all(axis=1))

    def estimate(values: np.ndarray) -> Intervals:
        return simultaneous_intervals(values, confidence=own.confidence, seed=min(seeds), units=UNITS)

    arms = tuple(_arm(label, measured, harmed, estimate) for label in labels)
    trained = [label for label in labels if label != BEFORE]
    return Experiment(
        context=first.context,
        tolerance=first.tolerance,
        bases=tuple(bases),
        seeds=tuple(seeds),
        runs=tuple(runs),
        starts=own.starts,
        stops=own.stops,
        harmed=tuple(map(int, harmed.sum(axis=0))),
        arms=arms,
        contrasts=tuple(
            Contrast(
                first=one,
                second=other,
                difference=_estimate(estimate(measured[one].of_bases - measured[other].of_bases)),
            )
            for one, other in combinations(trained, 2)
        ),
        confidence=own.confidence,
        interval=estimate(measured[BEFORE].of_bases).method,
        proposal=first.proposal,
        sentence=_sentence(arms, harmed, own.starts, own.stops, len(bases), len(seeds)),
        seconds=seconds,
    )


def _measure(repairs: Sequence[Sequence[Repair]], place: int) -> _Measured:
    rows = [[repair.rows[place] for repair in of_base] for of_base in repairs]
    return _Measured(
        excess=np.array([[row.own.mean for row in of_base] for of_base in rows]),
        harms=np.array([[[words == HARMS for words in row.meaning] for row in of_base] for of_base in rows]),
        perplexity=np.array([[row.in_range_perplexity for row in of_base] for of_base in rows]),
    )


def _arm(
    label: str, measured: dict[str, _Measured], harmed: np.ndarray, estimate: Callable[[np.ndarray], Intervals]
) -> ExperimentArm:
    own, before, control = measured[label], measured[BEFORE].of_bases, measured[CONTROL].of_bases
    with np.errstate(divide="ignore", invalid="ignore"):
        gone = np.where(harmed, 1 - own.of_bases / before, np.nan)  # [bases, ranges]
    counted = harmed.sum(axis=0)
    share = np.where(counted > 0, np.nansum(gone, axis=0) / np.maximum(counted, 1), np.nan)
    return ExperimentArm(
        label=label,
        excess=own.excess,
        harms=own.harms,
        in_range_perplexity=own.perplexity,
        over_bases=_estimate(estimate(own.of_bases)),
        over_control=_estimate(estimate(own.of_bases - control)),
        taken_away=tuple(map(float, share)),
        repaired=tuple(map(int, (harmed & (np.nan_to_num(gone, nan=-np.inf) >= REPAIRED)).sum(axis=0))),
        freed=tuple(map(int, (harmed & ~own.harms.any(axis=1)).sum(axis=0))),
    )


def _estimate(intervals: Intervals) -> MeanOverBases:
    ends = (tuple(map(float, values)) for values in (intervals.mean, intervals.lower, intervals.upper))
    mean, lower, upper = ends
    return MeanOverBases(mean=mean, lower=lower, upper=upper)


def _sentence(
    arms: Sequence[ExperimentArm],
    harmed: np.ndarray,
    starts: Sequence[int],
    stops: Sequence[int],
    bases: int,
    seeds: int,
) -> str:
    """The farthest range in which bases were harmed, and what each arm leaves of it, the best first."""
    counted = harmed.sum(axis=0)
    if not counted.any():
        return f"None of the {bases} bases was surely harmed by reading on, in any range: there was nothing to repair."
    at = int(np.flatnonzero(counted)[-1])
    before, *trained = arms
    ranked = sorted(trained, key=lambda arm: arm.over_bases.mean[at])
    parts = [
        f"{arm.label} {arm.over_bases.mean[at]:+.3f} ({arm.taken_away[at]:.0%} taken away, "
        f"{arm.repaired[at]} of {counted[at]} repaired)"
        for arm in ranked
    ]
    return (
        f"At {starts[at]:,}-{stops[at]:,} tokens, over {bases} bases ({seeds} seed{'s' * (seeds != 1)} each), the "
        f"excess was {before.over_bases.mean[at]:+.3f} nats before; {'; '.join(parts)}."
    )
