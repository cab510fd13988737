"""The table of an experiment, before it is drawn: what the terminal and the page both show of each arm."""

from dataclasses import dataclass

from everlong.records.experiment import Experiment, ExperimentArm, MeanOverBases
from everlong.reports._words import estimate, method_name, plural

Lines = tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class ArmBlock:
    """One arm: its lines, a cell for each range."""

    label: str
    name: str
    perplexity: float
    lines: Lines


def arm_blocks(experiment: Experiment) -> tuple[ArmBlock, ...]:
    """A block an arm."""
    return tuple(
        ArmBlock(
            label=arm.label,
            name=method_name(arm.label),
            perplexity=float(arm.in_range_perplexity.mean()),
            lines=_lines(experiment, arm),
        )
        for arm in experiment.arms
    )


def contrast_lines(experiment: Experiment) -> Lines:
    """A line a pair of arms."""
    return tuple(
        (f"{method_name(pair.first)} minus {method_name(pair.second)}", _cells(pair.difference))
        for pair in experiment.contrasts
    )


def legend(experiment: Experiment) -> tuple[tuple[str, str], ...]:
    """The terms of the table in plain words."""
    bases, seeds = plural(len(experiment.bases), "base"), plural(len(experiment.seeds), "seed")
    return (
        (
            "excess",
            f"the loss with the state carried from the document's beginning, minus that of the model itself, started "
            f"afresh and shown the last {experiment.context:,} tokens at most; the mean over {bases}, each the mean of "
            f"{seeds}.",
        ),
        ("over control", "the excess minus that of the zero-start control from the same base, at the same budget."),
        ("taken away", "the share of the excess before repair that is gone, over the bases that were harmed before."),
        ("repaired", "how many of the harmed bases have lost nine tenths of their excess or more."),
        (
            "freed",
            f"how many of the harmed bases reading on surely harms under no seed any more (by more than "
            f"{experiment.tolerance:g} nats).",
        ),
        (
            "intervals",
            f"{experiment.confidence:.0%}; {experiment.interval}: bases are the replicates, and the arms of a base are "
            "paired.",
        ),
    )


def _lines(experiment: Experiment, arm: ExperimentArm) -> Lines:
    own = ("excess", _cells(arm.over_bases))
    if arm.label == "before":
        bases = len(experiment.bases)
        return (own, ("harmed", tuple(f"{harmed} of {bases}" for harmed in experiment.harmed)))
    control = () if arm.label == "zero" else (("over control", _cells(arm.over_control)),)
    return (
        own,
        *control,
        ("taken away", tuple("n/a" if share != share else f"{share:.0%}" for share in arm.taken_away)),
        ("repaired", _counts(arm.repaired, experiment.harmed)),
        ("freed", _counts(arm.freed, experiment.harmed)),
    )


def _cells(values: MeanOverBases) -> tuple[str, ...]:
    return tuple(estimate(*cell) for cell in zip(values.mean, values.lower, values.upper, strict=True))


def _counts(counts: tuple[int, ...], harmed: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"{count} of {of}" if of else "n/a" for count, of in zip(counts, harmed, strict=True))
