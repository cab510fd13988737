"""Exposure of several settings against the excess that they leave: what is read off, and its tables in words."""

from collections.abc import Mapping, Sequence

import numpy as np

from everlong.diagnostics._intervals import simultaneous_intervals
from everlong.diagnostics.comparison import BEFORE, CONTROL
from everlong.diagnostics.over_bases import UNITS
from everlong.recipes._ranks import rank_correlation
from everlong.records.experiment import Experiment
from everlong.records.sweep import ExposurePair, ExposureStudy
from everlong.reports._words import estimate, positions


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
        held: pairs of settings of one exposure, the one that stands earlier in ``exposure`` first.
    """
    labels = tuple(exposure)
    tokens = np.array([exposure[label] for label in labels], dtype=float)
    of_step = np.array([step_tokens[label] for label in labels])
    differences = {(pair.first, pair.second): pair.difference for pair in experiment.contrasts}

    def pair(first: str, second: str) -> ExposurePair:
        one, other = (tokens[labels.index(label)] for label in (first, second))
        ratio = np.divide(other, one, out=np.full_like(one, np.nan), where=one > 0)
        difference = differences[first, second]
        found = np.array([difference.mean, difference.lower, difference.upper])
        return ExposurePair(first=first, second=second, ratio=ratio, difference=found)

    return ExposureStudy(
        labels=labels,
        words=tuple(words[label] for label in labels),
        ages=tuple(ages),
        exposure=tokens,
        step_tokens=tuple(map(int, of_step)),
        correlations=_correlations(experiment, labels, tokens),
        share_correlations=_correlations(experiment, labels, tokens / of_step[:, None]),
        pairs=tuple(pair(*labels) for labels in held),
    )


def exposure_lines(study: ExposureStudy, experiment: Experiment) -> list[str]:
    """Settings, pairs and rank correlations as tables, in Markdown."""
    ranges = [positions(*bounds) for bounds in zip(experiment.starts, experiment.stops, strict=True)]
    ages = [f"from {age:,}" for age in study.ages]
    told = dict(zip(study.labels, zip(study.words, study.exposure, strict=True), strict=True))

    def row(label: str) -> tuple[str, ...]:
        arm = next(arm for arm in experiment.arms if arm.label == label)
        words, tokens = told.get(label, ("", ()))
        met = [f"{value:,.0f}" for value in tokens] or [""] * len(ages)
        own = arm.over_bases
        excess = _cells((own.mean, own.lower, own.upper))
        return (label, words, *met, f"{arm.in_range_perplexity.mean():.3f}", *excess)

    pairs = [
        (f"{pair.first} minus {pair.second}", *(f"{value:.2f}" for value in pair.ratio), *_cells(pair.difference))
        for pair in study.pairs
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
        *_table(("one exposure", *(f"ratio {age}" for age in ages), *ranges), pairs),
        "",
        *_table(("rank correlation of excess with", *ranges), ranked),
    ]


def _correlations(experiment: Experiment, labels: Sequence[str], exposure: np.ndarray) -> np.ndarray:
    """Of exposure [settings, ages] and excess: [ages, mean and ends, ranges], over bases."""
    excess = {arm.label: arm.excess.mean(axis=1) for arm in experiment.arms}
    compared = [place for place, label in enumerate(labels) if label != CONTROL]
    left = np.stack([excess[labels[place]] for place in compared])  # [settings, bases, ranges]
    _, bases, ranges = left.shape

    def over_bases(of_age: np.ndarray) -> np.ndarray:
        found = [[rank_correlation(of_age, left[:, base, at]) for at in range(ranges)] for base in range(bases)]
        intervals = simultaneous_intervals(
            np.array(found), confidence=experiment.confidence, seed=min(experiment.seeds), units=UNITS
        )
        return np.stack([intervals.mean, intervals.lower, intervals.upper])

    return np.stack([over_bases(of_age) for of_age in exposure[compared].T])


def _cells(values: Sequence[Sequence[float]] | np.ndarray) -> tuple[str, ...]:
    """Means and ends [3, ranges] in words."""
    return tuple(estimate(*map(float, cell)) for cell in zip(*values, strict=True))


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
