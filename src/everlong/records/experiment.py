"""Records of arms compared over bases."""

from dataclasses import dataclass

import numpy as np

from everlong.records._record import Record


@dataclass(frozen=True, kw_only=True)
class MeanOverBases(Record):
    """Means over bases, one for each range of positions, with simultaneous intervals."""

    mean: tuple[float, ...]
    lower: tuple[float, ...]
    """Lower ends; not-a-number below two bases."""
    upper: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ExperimentArm(Record):
    """One arm over all bases: before repair, the control, or a repair."""

    label: str
    excess: np.ndarray
    """[bases, seeds, ranges], nats against the model's own window of the training length."""
    harms: np.ndarray
    """[bases, seeds, ranges], whether reading on surely harms, by the documents' interval."""
    in_range_perplexity: np.ndarray
    """[bases, seeds]."""
    over_bases: MeanOverBases
    """Of the excess, in nats; the seeds of a base are averaged first."""
    over_control: MeanOverBases
    """Of the excess minus the control's from the same base, in nats."""
    taken_away: tuple[float, ...]
    """For each range, the share of the excess before that is gone, the mean over the bases that were harmed there."""
    repaired: tuple[int, ...]
    """For each range, how many of the harmed bases have lost nine tenths of their excess or more."""
    freed: tuple[int, ...]
    """For each range, how many of the harmed bases reading on surely harms under no seed any more."""


@dataclass(frozen=True, kw_only=True)
class Contrast(Record):
    """The excess after one arm minus that after another, from the same bases, in nats."""

    first: str
    second: str
    difference: MeanOverBases


@dataclass(frozen=True, kw_only=True)
class Experiment(Record):
    """All arms from several bases: bases are the replicates, and the arms are paired on them."""

    context: int
    """The training length in tokens."""
    tolerance: float
    bases: tuple[str, ...]
    seeds: tuple[int, ...]
    """Of the order of batches and of what is drawn, under each base."""
    runs: tuple[str, ...]
    """The repairs, base by base and seed by seed: folders within this run."""
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    harmed: tuple[int, ...]
    """For each range, how many bases reading on surely harmed before."""
    arms: tuple[ExperimentArm, ...]
    contrasts: tuple[Contrast, ...]
    """Every pair of arms."""
    confidence: float
    interval: str
    """How the intervals were made."""
    proposal: str
    sentence: str
    seconds: dict[str, float]
    """Phase -> wall-clock seconds."""
