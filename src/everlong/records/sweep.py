"""Typed records of sweeps over seeds, rates or exposure."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from everlong.records._record import Record


@dataclass(frozen=True, kw_only=True)
class SweepArm(Record):
    """One way of training, under every seed and learning rate."""

    label: str
    words: str
    """What it is."""
    scores: dict[str, np.ndarray]
    """Measure -> [learning rates, seeds, cells], means over the examples of a cell."""
    losses: np.ndarray
    """[learning rates, seeds], of the last tenth of the training, in nats; not-a-number where nothing was trained."""
    learned: np.ndarray
    """[learning rates, seeds], whether the task was learned."""
    chosen: int
    """Place of the learning rate that the arm is judged at: that with the most seeds that learn; of several, that with
    the best mean in range. Cells beyond the training length have no say in it."""
    share: tuple[float, float, float]
    """Of the seeds that learn at that rate, with Wilson's interval."""
    mean: np.ndarray
    """[cells], of the first measure at that rate, over seeds."""
    lower: np.ndarray
    upper: np.ndarray


@dataclass(frozen=True, kw_only=True)
class SweepContrast(Record):
    """The first measure of one arm minus that of another, each at its own rate, paired."""

    first: str
    second: str
    over: str
    """Which seeds: all, or those that learn under both."""
    seeds: int
    mean: np.ndarray
    """[cells]."""
    lower: np.ndarray
    """Not-a-number where there is too little to judge."""
    upper: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Sweep(Record):
    """A task learned in several ways, each under several seeds and learning rates."""

    task: str
    measures: tuple[str, ...]
    """The first is the one that counts."""
    length_is: str
    cells: tuple[dict[str, Any], ...]
    floors: tuple[dict[str, float], ...]
    """Of each cell: what guessing scores by the first measure."""
    notes: tuple[tuple[str, ...], ...]
    """Of each cell: what a reader of the scores must know."""
    in_range: tuple[int, ...]
    """Places of the cells within the training length."""
    learns: str
    """When a seed counts as having learned."""
    learning_rates: tuple[float, ...]
    seeds: tuple[int, ...]
    arms: tuple[SweepArm, ...]
    contrasts: tuple[SweepContrast, ...]
    context: int | None
    """The training length in tokens."""
    architecture: str
    parameters: int
    state: str
    """Size of the recurrent state, in words."""
    state_elements: int
    """Numbers in the recurrent state of one row, over all layers."""
    examples: int
    """In each cell, the same for every arm and seed."""
    confidence: float
    interval: str
    """How the intervals were made; a cell at a time."""
    settings: dict[str, Any]
    sentence: str
    seconds: dict[str, float]
    """Run -> wall-clock seconds of its training and evaluation."""

    def cells_at(self, **parameters: Any) -> tuple[int, ...]:
        """Places of the cells that have these parameters."""
        wanted = parameters.items()
        return tuple(place for place, cell in enumerate(self.cells) if all(cell.get(name) == v for name, v in wanted))


@dataclass(frozen=True, kw_only=True)
class ExposurePair(Record):
    """Two settings of one exposure: if that were all that counts, they would leave the same excess."""

    first: str
    second: str
    ratio: np.ndarray
    """[ages], the second's exposure over the first's; not-a-number where the first has none."""
    difference: np.ndarray
    """[mean and ends, ranges], the first's excess minus the second's over bases, nats."""


@dataclass(frozen=True, kw_only=True)
class ExposureStudy(Record):
    """Exposure of several settings against the excess that they leave, which the experiment beside it holds."""

    labels: tuple[str, ...]
    """The settings, the control first: the experiment's arms."""
    words: tuple[str, ...]
    """What each is."""
    ages: tuple[int, ...]
    """In tokens."""
    exposure: np.ndarray
    """[settings, ages], scored tokens whose state is so old, each weighted by its learning rate over the peak of the
    reference. Draws have one seed, so that it is the same for every base."""
    step_tokens: tuple[int, ...]
    """Scored tokens a step, of each setting."""
    correlations: np.ndarray
    """[ages, mean and ends, ranges], Spearman's over bases, of exposure and excess, over all settings but the control;
    not-a-number where no two settings differ in exposure."""
    share_correlations: np.ndarray
    """The same of exposure over step_tokens: steps of that peak, each weighted by the share of its tokens so exposed,
    however many tokens it had."""
    pairs: tuple[ExposurePair, ...]
