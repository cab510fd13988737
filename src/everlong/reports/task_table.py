"""The table of a task for the terminal: a row a cell, every score with its interval, the floors beside the first."""

from rich.text import Text

from everlong.records.tasks import TaskEvaluation
from everlong.reports._pieces import Column, Pieces, texts
from everlong.reports._task_blocks import score_words, task_block, where


def task_table(evaluation: TaskEvaluation) -> Pieces:
    """The first score, its floors, then the others; a score whose whole interval lies above every floor is in bold."""
    block = task_block(evaluation)
    names = [
        Column(name, texts([row.parameters[place] for row in block.rows]), right=True)
        for place, name in enumerate(block.parameters)
    ]
    first, *others = (
        Column(
            name.replace("_", "\n"),
            tuple(
                Text(" ".join(score_words(row.scores[place])).rstrip(), "bold" if row.above and not place else "")
                for row in block.rows
            ),
        )
        for place, name in enumerate(block.measures)
    )
    floors = [
        Column("floor:\n" + name.replace(" ", "\n"), texts([row.floors[place] for row in block.rows]), right=True)
        for place, name in enumerate(block.floors)
    ]
    return Pieces(f"{evaluation.model}: {evaluation.task}", names, [first, *floors, *others])


def task_lines(evaluation: TaskEvaluation) -> tuple[str, ...]:
    """How it was measured, and what a reader must know of single cells."""
    examples = max(cell.examples for cell in evaluation.cells)
    lines = [
        f"{examples:,} examples a cell (seed {evaluation.seed}); length: {evaluation.length_is}; intervals "
        f"{evaluation.confidence:.0%}, a cell at a time. Only a score above its floors says anything."
    ]
    for cell in evaluation.cells:
        lines += [f"{where(cell)}: {note}." for note in cell.notes]
    return tuple(lines)
