"""Exposure of several settings against the excess that they leave: the record, and its tables in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from everlong._record import Record
from everlong.diagnostics._intervals import simultaneous_intervals
from everlong.diagnostics.comparison import BEFORE, CONTROL
from everlong.diagnostics.over_bases import UNITS
from everlong.records import Experiment, MeanOverBases
from everlong.reports._words import estimate, positions


@dataclass(frozen=True, kw_only=True)
class HeldExposure(Record):
    """Two settings of one exposure: if that were all that counts, they would leave the same excess."""

    first: str
    second: str
    ratio: tuple[float, ...]
    """The second's exposure over the first's, at each age."""
    difference: MeanOverBases
    """The first's excess minus the second's in each range, nats."""


@dataclass(frozen=True, kw_only=True)
class ExposureStudy(Record):
    """Exposure of each setting against the excess that it leaves."""

    labels: tuple[str, ...]
    """The settings, the control first."""
    words: tuple[str, ...]
    """What each is."""
    ages: tuple[int, ...]
    """In tokens."""
    exposure: np.ndarray
    """[settings, ages], scored tokens whose state is so old, each weighted by its learning rate over the peak of the
    reference. Draws have one seed, so that it is the same for every base."""
    step_tokens: tuple[int, ...]
    """Scored tokens a step, of each setting."""
    correlations: tuple[MeanOverBases, ...]
    """For each age, one for each range: Spearman's, of exposure and excess, over all settings but the control."""
    share_correlations: tuple[MeanOverBases, ...]
    """The same of exposure over step_tokens: steps of that peak, each weighted by the share of its tokens so exposed,
    however many tokens it had."""
    held: tuple[HeldExposure, ...]
    experiment: Experiment
    """The settings as arms."""


def exposure_study(
    experiment: Experiment,
    words: Mapping[str, str],
    exposure: Mapping[str, Sequence[float]],
    step_tokens: Mapping[str, int],
    ages: Sequence[int],
    held: Sequence[tuple[str, str]],
) -> ExposureStudy:
    """Sets the excess of an experiment's arms against their exposure.

    Args:
        experiment: the settings as arms.
        words: setting -> what it is.
        exposure: setting -> at each age, weighted scored tokens.
        step_tokens: setting -> scored tokens a step.
        ages: in tokens.
        held: pairs of settings of one exposure.
    """
    labels = tuple(exposure)
    tokens = np.array([exposure[label] for label in labels], dtype=float)
    shares = tokens / np.array([[step_tokens[label]] for label in labels])
    differences = {(pair.first, pair.second): pair.difference for pair in experiment.contrasts}

    def pair(first: str, second: str) -> HeldExposure:
        one, other = exposure[first], exposure[second]
        ratio = tuple(b / a if a else float("nan") for a, b in zip(one, other, strict=True))
        return HeldExposure(first=first, second=second, ratio=ratio, difference=differences[first, second])

    return ExposureStudy(
        labels=labels,
        words=tuple(words[label] for label in labels),
        ages=tuple(ages),
        exposure=tokens,
        step_tokens=tuple(step_tokens[label] for label in labels),
        correlations=_correlations(experiment, labels, tokens),
        share_correlations=_correlations(experiment, labels, shares),
        held=tuple(pair(*labels) for labels in held),
        experiment=experiment,
    )


def exposure_lines(study: ExposureStudy) -> list[str]:
    """Settings, pairs and rank correlations as tables, in Markdown."""
    experiment = study.experiment
    ranges = [positions(*bounds) for bounds in zip(experiment.starts, experiment.stops, strict=True)]
    ages = [f"from {age:,}" for age in study.ages]
    told = dict(zip(study.labels, zip(study.words, study.exposure, strict=True), strict=True))

    def row(label: str) -> tuple[str, ...]:
        arm = next(arm for arm in experiment.arms if arm.label == label)
        words, tokens = told.get(label, ("", ()))
        met = [f"{value:,.0f}" for value in tokens] or [""] * len(ages)
        return (label, words, *met, f"{arm.in_range_perplexity.mean():.3f}", *_cells(arm.over_bases))

    held = [
        (f"{pair.first} minus {pair.second}", *(f"{value:.2f}" for value in pair.ratio), *_cells(pair.difference))
        for pair in study.held
    ]
    ranked = [
        (f"{what} {age}", *_cells(values))
        for what, found in (("exposure", study.correlations), ("exposure / step tokens", study.share_correlations))
        for age, values in zip(ages, found, strict=True)
    ]
    return [
        *_table(
            ("setting", "what it is", *(f"exposure {age}" for age in ages), "perplexity in range", *ranges),
            [row(label) for label in (BEFORE, *study.labels)],
        ),
        "",
        *_table(("one exposure", *(f"ratio {age}" for age in ages), *ranges), held),
        "",
        *_table(("rank correlation of excess with", *ranges), ranked),
    ]


def _correlations(experiment: Experiment, labels: Sequence[str], exposure: np.ndarray) -> tuple[MeanOverBases, ...]:
    """Of exposure [settings, ages] and excess: for each age, over bases, one for each range."""
    excess = {arm.label: arm.excess.mean(axis=1) for arm in experiment.arms}
    compared = [place for place, label in enumerate(labels) if label != CONTROL]
    left = np.stack([excess[labels[place]] for place in compared])  # [settings, bases, ranges]
    _, bases, ranges = left.shape

    def over_bases(of_age: np.ndarray) -> MeanOverBases:
        found = [[_rank_correlation(of_age, left[:, base, at]) for at in range(ranges)] for base in range(bases)]
        intervals = simultaneous_intervals(
            np.array(found), confidence=experiment.confidence, seed=min(experiment.seeds), units=UNITS
        )
        mean, lower, upper = (tuple(map(float, v)) for v in (intervals.mean, intervals.lower, intervals.upper))
        return MeanOverBases(mean=mean, lower=lower, upper=upper)

    return tuple(over_bases(of_age) for of_age in exposure[compared].T)


def _rank_correlation(exposure: np.ndarray, excess: np.ndarray) -> float:
    """Not-a-number where either does not vary."""
    varies = np.ptp(exposure) > 0 and np.ptp(excess) > 0
    return float(np.corrcoef(rankdata(exposure), rankdata(excess))[0, 1]) if varies else float("nan")


def _cells(values: MeanOverBases) -> tuple[str, ...]:
    return tuple(estimate(*cell) for cell in zip(values.mean, values.lower, values.upper, strict=True))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
