"""What the page of an evaluation says in words: what was asked of which model, what came out, what it does not show."""

from collections.abc import Iterable

from everlong.records.tasks import TaskCell, TaskEvaluation
from everlong.reports._results import Results
from everlong.reports._task_blocks import ABOVE, against_floors, value_words
from everlong.reports._words import plural

MOST = 6
"""Lengths that a headline names one by one."""


def headline(results: Results) -> str:
    """What was measured on which model, and where it is more than a guess."""
    evaluations = tuple(results.evaluations.values())
    outcomes = "; ".join(_outcome(evaluation) for evaluation in evaluations)
    return (
        f"{evaluations[0].model} on {_list([evaluation.task for evaluation in evaluations])}, {_lengths(evaluations)}: "
        f"above every floor, with the whole interval, {outcomes}."
    )


def facts(results: Results) -> list[str]:
    """The model, what it was asked, and the intervals: a line each under the headline."""
    evaluations = tuple(results.evaluations.values())
    if not evaluations:
        return []
    one = evaluations[0]
    context = "training length not known" if one.context is None else f"trained on {one.context:,} tokens"
    examples = sorted({cell.examples for cell in _cells(evaluations)})
    tokens = sum(cell.tokens_read for cell in _cells(evaluations))
    return [
        f"{one.model}: {one.architecture}, {one.parameters:,} parameters, {context}; tokenizer {one.tokenizer}.",
        f"{' or '.join(f'{count:,}' for count in examples)} examples a cell, seed {one.seed}, {tokens:,} tokens of "
        f"prompts read from the zero state; backend {one.backend} on {one.device}, {one.dtype}.",
        f"Intervals: {one.confidence:.0%}, over the examples, a cell at a time; Wilson's where each score is right or "
        "wrong, else Student's t.",
    ]


def limits(results: Results) -> list[str]:
    """What a reader must not take from the page."""
    evaluations = tuple(results.evaluations.values())
    reach = f"Nothing beyond a length of {_longest(_cells(evaluations)):,} was asked. " if evaluations else ""
    return [
        "The intervals cover the choice of examples from these tasks, not another wording, other books, another "
        "seed of training or another model.",
        "Each interval stands for its cell alone: of many cells at their floors, a few come out above by chance.",
        f"{reach}No law is assumed by which the scores would continue.",
        "A score at its floor does not say why. Where the task fails within the training length already, the model "
        "cannot do it, and the longer cells say nothing of its memory.",
        "The loss of reading on is not measured here; everlong diagnose does.",
    ]


def times(results: Results) -> dict[str, float]:
    """Seconds by task."""
    return {f"evaluation of {task}": evaluation.seconds for task, evaluation in results.evaluations.items()}


def _outcome(evaluation: TaskEvaluation) -> str:
    cells = evaluation.cells
    above = [cell for cell in cells if against_floors(cell, evaluation.measures[0]) is ABOVE]
    count = f"{len(above)} of {plural(len(cells), 'cell')}" if above else f"none of {plural(len(cells), 'cell')}"
    far = f", the longest of {_longest(above):,}" if above else ""
    return f"{evaluation.task} in {count}{far}"


def _lengths(evaluations: Iterable[TaskEvaluation]) -> str:
    lengths = sorted({cell.parameters["length"] for cell in _cells(evaluations)})
    if len(lengths) > MOST:
        return f"{len(lengths)} lengths from {lengths[0]:,} to {lengths[-1]:,}"
    return f"{'length' if len(lengths) == 1 else 'lengths'} {_list([value_words(length) for length in lengths])}"


def _cells(evaluations: Iterable[TaskEvaluation]) -> list[TaskCell]:
    return [cell for evaluation in evaluations for cell in evaluation.cells]


def _longest(cells: Iterable[TaskCell]) -> int:
    return max(cell.parameters["length"] for cell in cells)


def _list(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
