"""A task learned under several seeds and learning rates: the share of seeds that learn, and arms in pairs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from scipy import stats

from everlong.records.sweep import Sweep, SweepArm, SweepContrast
from everlong.records.tasks import TaskEvaluation
from everlong.tasks._intervals import error_variance, wilson


@dataclass(frozen=True, kw_only=True)
class Trials:
    """An arm's trials.

    Attributes:
        words: what the arm is.
        evaluations: [learning rates][seeds]; all of the same cells and examples.
        losses: [learning rates, seeds], at the end of training, in nats.
    """

    words: str
    evaluations: Sequence[Sequence[TaskEvaluation]]
    losses: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Learned:
    """When a seed has learned: the mean of a measure over the cells within the training length reaches a bound.

    Attributes:
        measure: of the task.
        bound: between 0 and 1.
        lengths: of the cells within the training length.
    """

    measure: str
    bound: float
    lengths: tuple[int, ...]

    def words(self) -> str:
        """The definition, for people."""
        where = ", ".join(f"{length:,}" for length in self.lengths)
        return f"{self.measure.replace('_', ' ')} of at least {self.bound:g}, the mean over the cells of length {where}"


def over_seeds(
    trials: Mapping[str, Trials],
    *,
    learned: Learned,
    learning_rates: Sequence[float],
    seeds: Sequence[int],
    state: str,
    state_elements: int,
    settings: Mapping[str, Any],
    seconds: Mapping[str, float],
) -> Sweep:
    """The record of a sweep; its sentence is left to the caller, who knows what was asked.

    Args:
        trials: by arm.
        learned: when a seed counts.
        learning_rates: the first axis of the trials.
        seeds: the second.
        state: size of the recurrent state, in words.
        state_elements: the same as a number.
        settings: what else a reader must know.
        seconds: run -> seconds.
    """
    first = next(iter(trials.values())).evaluations[0][0]
    in_range = tuple(i for i, cell in enumerate(first.cells) if cell.parameters["length"] in learned.lengths)
    assert in_range, "no cell lies within the training length"
    arms = {label: _arm(label, each, learned, in_range, first.confidence) for label, each in trials.items()}
    over = "seeds" if len(seeds) > 1 else "examples (there is one seed: nothing is said of others)"
    return Sweep(
        task=first.task,
        measures=first.measures,
        length_is=first.length_is,
        cells=tuple(cell.parameters for cell in first.cells),
        floors=tuple(cell.floors for cell in first.cells),
        notes=tuple(cell.notes for cell in first.cells),
        in_range=in_range,
        learns=learned.words(),
        learning_rates=tuple(learning_rates),
        seeds=tuple(seeds),
        arms=tuple(arms.values()),
        contrasts=tuple(
            contrast
            for one, other in combinations(arms, 2)
            for contrast in _contrasts(arms[one], arms[other], trials[one], trials[other], first.confidence)
        ),
        context=first.context,
        architecture=first.architecture,
        parameters=first.parameters,
        state=state,
        state_elements=state_elements,
        examples=max(cell.examples for cell in first.cells),
        confidence=first.confidence,
        interval=f"over {over}; Student's t, with the spread that a cell's few examples make at least; for shares over "
        "examples Wilson's",
        settings=dict(settings),
        sentence="",
        seconds=dict(seconds),
    )


def _arm(label: str, trials: Trials, learned: Learned, in_range: tuple[int, ...], confidence: float) -> SweepArm:
    first = trials.evaluations[0][0]
    scores = {
        measure: np.array(
            [[[cell.scores[measure].mean for cell in one.cells] for one in of_rate] for of_rate in trials.evaluations]
        )
        for measure in first.cells[0].scores
    }
    within = scores[learned.measure][:, :, list(in_range)].mean(axis=2)
    has_learned = within >= learned.bound
    chosen = max(range(len(within)), key=lambda rate: (has_learned[rate].sum(), within[rate].mean()))
    share = float(has_learned[chosen].mean())
    models = has_learned.shape[1] if _trained(trials.evaluations[chosen]) else 1
    lower, upper = wilson(share * models, models, confidence)
    bounds = _bounds(scores[first.measures[0]][chosen], trials.evaluations[chosen], confidence)
    return SweepArm(
        label=label,
        words=trials.words,
        scores=scores,
        losses=trials.losses,
        learned=has_learned,
        chosen=chosen,
        share=(share, lower, upper),
        mean=scores[first.measures[0]][chosen].mean(axis=0),
        lower=bounds[0],
        upper=bounds[1],
    )


def _trained(evaluations: Sequence[TaskEvaluation]) -> bool:
    """Whether there is a model a seed, and not one that is what it was under all."""
    return any(each is not evaluations[0] for each in evaluations)


def _bounds(
    scores: np.ndarray, evaluations: Sequence[TaskEvaluation], confidence: float
) -> tuple[np.ndarray, np.ndarray]:
    """Over seeds [seeds, cells]; of one seed, or where nothing was trained, those over the examples."""
    measure = evaluations[0].measures[0]
    if _trained(evaluations):
        errors = [[error_variance(cell.values[measure], 0.0) for cell in each.cells] for each in evaluations]
        return _students(scores, np.array(errors), len(scores), confidence, least=0.0)
    cells = [cell.scores[measure] for cell in evaluations[0].cells]
    return np.array([score.lower for score in cells]), np.array([score.upper for score in cells])


def _contrasts(
    one: SweepArm, other: SweepArm, of_one: Trials, of_other: Trials, confidence: float
) -> list[SweepContrast]:
    """Over all seeds, and over those that learn under both arms where that says something else."""
    first, second = of_one.evaluations[one.chosen], of_other.evaluations[other.chosen]
    measure = first[0].measures[0]
    differences = one.scores[measure][one.chosen] - other.scores[measure][other.chosen]
    both = one.learned[one.chosen] & other.learned[other.chosen]
    chosen = {"all seeds": np.ones_like(both), "the seeds that learn under both": both}
    if both.all() or not both.any():
        del chosen["the seeds that learn under both"]
    made = []
    for over, which in chosen.items():
        errors = np.array([_paired_errors(first[seed], second[seed]) for seed in np.flatnonzero(which).tolist()])
        units = len(errors) if len(errors) > 1 else min(cell.examples for cell in first[0].cells)
        lower, upper = _students(differences[which], errors, units, confidence, least=-1.0)
        made.append(
            SweepContrast(
                first=one.label,
                second=other.label,
                over=over,
                seeds=len(errors),
                mean=differences[which].mean(axis=0),
                lower=lower,
                upper=upper,
            )
        )
    return made


def _students(
    values: np.ndarray, errors: np.ndarray, units: int, confidence: float, *, least: float
) -> tuple[np.ndarray, np.ndarray]:
    """Of the means over seeds.

    Args:
        values: [seeds, cells], means over examples.
        errors: [seeds, cells], the error variance of each of these means: seeds that came out alike by chance differ
            by that much at least.
        units: the seeds; of one seed, its examples.
        confidence: of the interval.
        least: that a value can be, where the largest is 1.
    """
    count, error = len(values), errors.mean(axis=0)
    spread = np.maximum(values.var(axis=0, ddof=1), error) if count > 1 else error
    half = float(stats.t.ppf(0.5 + confidence / 2, units - 1)) * np.sqrt(spread / count)
    mean = values.mean(axis=0)
    return np.maximum(mean - half, least), np.minimum(mean + half, 1.0)


def _paired_errors(one: TaskEvaluation, other: TaskEvaluation) -> list[float]:
    """Of one seed, by cell: the error variance of the mean difference, paired on the examples."""
    measure = one.measures[0]
    pairs = zip(one.cells, other.cells, strict=True)
    return [error_variance(cell.values[measure] - same.values[measure], -1.0) for cell, same in pairs]
