"""The table of a task's evaluation: a row a cell, every score with its interval, the floors beside it."""

from rich.table import Table
from rich.text import Text

from everlong.records.tasks import Score, TaskEvaluation


def task_table(evaluation: TaskEvaluation) -> Table:
    """A row a cell; a score whose whole interval lies above every floor stands in bold."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.title = Text(f"{evaluation.model}: {evaluation.task}")
    table.title_style, table.title_justify = "bold", "left"
    parameters, floors = list(evaluation.cells[0].parameters), list(evaluation.cells[0].floors)
    for name in parameters:
        table.add_column(name, justify="right", no_wrap=True)
    for name in evaluation.measures:
        table.add_column(name.replace("_", "\n"), no_wrap=True)
    for name in floors:
        table.add_column(f"floor:\n{name}", justify="right")
    for cell in evaluation.cells:
        best = max(cell.floors.values(), default=0.0)
        scores = [Text(_words(cell.scores[name])) for name in evaluation.measures]
        if cell.scores[evaluation.measures[0]].lower > best:
            scores[0].stylize("bold")
        table.add_row(*map(_value, cell.parameters.values()), *scores, *(f"{cell.floors[name]:.2g}" for name in floors))
    return table


def task_lines(evaluation: TaskEvaluation) -> tuple[str, ...]:
    """How it was measured, and what a reader must know of single cells."""
    examples = max(cell.examples for cell in evaluation.cells)
    lines = [
        f"{examples:,} examples a cell (seed {evaluation.seed}); length: {evaluation.length_is}; intervals "
        f"{evaluation.confidence:.0%}, a cell at a time. Only a score above its floors says anything."
    ]
    for cell in evaluation.cells:
        where = ", ".join(f"{name} {_value(value)}" for name, value in cell.parameters.items())
        lines += [f"{where}: {note}." for note in cell.notes]
    return tuple(lines)


def _words(score: Score) -> str:
    return f"{score.mean:.2f} [{score.lower:.2f}, {score.upper:.2f}]"


def _value(value: object) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
