"""The table of a task, before it is drawn: what the terminal, the page and the CSV files all show of each cell."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from everlong.records.tasks import Score, TaskCell, TaskEvaluation
from everlong.reports._words import Meaning

VALID = "valid"
TERMS = {
    "accuracy": "share of the examples whose answer is right, as the model writes it (greedily).",
    "accuracy_by_words": "the same, but labels count as whole words only.",
    VALID: "share of the examples in which any answer of the task was named at all. Where it is low, the model does "
    "not take the question for one, and its accuracy says little of its memory.",
    "forced_accuracy": "share in which each token of the right answer was the likeliest in its place.",
    "character_accuracy": "share of the characters that were the likeliest in their places, after the right ones.",
    "free_character_accuracy": "share of the characters that are right where the model reads its own.",
    "exact_match": "share of the strings that the model wrote without a mistake.",
    "nats": "loss a token on the right answer; less is better. No floor belongs to it.",
}


@dataclass(frozen=True)
class TaskRow:
    """One cell."""

    parameters: tuple[str, ...]
    scores: tuple[Score, ...]
    floors: tuple[str, ...]
    meaning: Meaning
    notes: tuple[str, ...]

    @property
    def above(self) -> bool:
        """Whether the whole interval of the first score lies above every floor."""
        return self.meaning is ABOVE


@dataclass(frozen=True)
class TaskBlock:
    """All cells of a task, and what their columns are."""

    parameters: tuple[str, ...]
    measures: tuple[str, ...]
    floors: tuple[str, ...]
    rows: tuple[TaskRow, ...]


ABOVE = Meaning("pays", "▲", "above")
BELOW = Meaning("even", "▼", "below")
NOT_ABOVE = Meaning("open", "?", "not above")


def task_block(evaluation: TaskEvaluation) -> TaskBlock:
    """A row a cell. A parameter that is set in no cell (a distance, say) is no column."""
    cells = evaluation.cells
    parameters = tuple(
        name
        for name in union(cell.parameters for cell in cells)
        if any(cell.parameters.get(name) is not None for cell in cells)
    )
    measures, floors = _measures((evaluation,)), union(cell.floors for cell in cells)
    rows = (
        TaskRow(
            parameters=tuple(value_words(cell.parameters.get(name)) for name in parameters),
            scores=tuple(cell.scores[name] for name in measures),
            floors=tuple(f"{cell.floors[name]:.2g}" if name in cell.floors else "n/a" for name in floors),
            meaning=against_floors(cell, evaluation.measures[0]),
            notes=cell.notes,
        )
        for cell in cells
    )
    return TaskBlock(parameters=parameters, measures=measures, floors=floors, rows=tuple(rows))


def against_floors(cell: TaskCell, measure: str) -> Meaning:
    """What the interval of a score says beside the best of the floors."""
    score, floor = cell.scores[measure], best_floor(cell)
    return ABOVE if score.lower > floor else BELOW if score.upper < floor else NOT_ABOVE


def best_floor(cell: TaskCell) -> float:
    """The highest floor of a cell; 0 where it has none."""
    return max(cell.floors.values(), default=0.0)


def where(cell: TaskCell) -> str:
    """A cell in words: length 1,024, depth 0.5."""
    return ", ".join(f"{name} {value_words(value)}" for name, value in cell.parameters.items() if value is not None)


def value_words(value: object) -> str:
    """A parameter as a person reads it."""
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def score_words(score: Score) -> tuple[str, str]:
    """A mean, and its interval in one piece; nothing for the interval of a single example."""
    if score.lower != score.lower:
        return f"{score.mean:.2f}", ""
    digits = 2 if score.upper - score.lower >= 0.02 else 3  # so that no interval looks like a point
    return f"{score.mean:.{digits}f}", f"[{score.lower:.{digits}f},{score.upper:.{digits}f}]"


def legend(evaluations: Iterable[TaskEvaluation]) -> tuple[tuple[str, str], ...]:
    """The measures in plain words, and the floors."""
    return (
        *((name.replace("_", " "), TERMS[name]) for name in _measures(evaluations) if name in TERMS),
        (
            "floor",
            "what the first score is without having read the prompt: by chance, by the most frequent or another "
            "constant answer. Above: the whole interval lies above every floor; below: the whole lies below the best. "
            "Only a score above its floors says anything.",
        ),
    )


def csv_table(evaluations: Sequence[TaskEvaluation]) -> tuple[tuple[str, ...], tuple[tuple, ...]]:
    """Columns and rows of a CSV file: a row a cell, with every measure, interval, floor and note; empty: has none."""
    cells = [cell for evaluation in evaluations for cell in evaluation.cells]
    parameters, measures = union(cell.parameters for cell in cells), _measures(evaluations)
    floors = union(cell.floors for cell in cells)
    columns = (
        *("task", *parameters, "examples"),
        *(f"{name}{end}" for name in measures for end in ("", "_lower", "_upper")),
        *(f"floor_{name.replace(' ', '_')}" for name in floors),
        "notes",
    )
    rows = tuple(
        (
            *(cell.task, *(cell.parameters.get(name) for name in parameters), cell.examples),
            *(number for name in measures for number in _numbers(cell.scores.get(name))),
            *(cell.floors.get(name) for name in floors),
            "; ".join(cell.notes),
        )
        for cell in cells
    )
    return columns, rows


def union(mappings: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """All names, in the order in which they first come."""
    return tuple(dict.fromkeys(name for names in mappings for name in names))


def _measures(evaluations: Iterable[TaskEvaluation]) -> tuple[str, ...]:
    """The first measure and the valid-label rate, without which it is not to be read; then the others."""
    evaluations = tuple(evaluations)
    first = [evaluation.measures[0] for evaluation in evaluations]
    valid = [VALID for evaluation in evaluations if VALID in evaluation.measures]
    others = [evaluation.measures for evaluation in evaluations]
    also = [cell.scores for evaluation in evaluations for cell in evaluation.cells]  # the loss, which every task has
    return union([first, valid, *others, *also])


def _numbers(score: Score | None) -> Iterator[float | None]:
    yield from (score.mean, score.lower, score.upper) if score else (None, None, None)
