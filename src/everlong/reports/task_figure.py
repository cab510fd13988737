"""All tasks but passkey: the score against the length, a line for each setting, as the paper's Fig. 6."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from everlong.records.tasks import Score, TaskCell, TaskEvaluation
from everlong.reports._axes import legend_on_top
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._results import Results
from everlong.reports._styles import OTHERS, Style, styles_of
from everlong.reports._task_blocks import best_floor, csv_table

CAPTION = (
    "The first measure of each task against the length, with intervals of {confidence:.0%} a point; dotted, the best "
    "floor: what a guess or a constant answer scores. Only a score above its floor says anything. Of more than {most} "
    "lines in a panel their mean is drawn, with the interval that follows from theirs (Zou & Donner 2008); the CSV has "
    "them all, with every measure and floor."
)


@dataclass(frozen=True)
class _Point:
    length: int
    score: Score
    floor: float


def task_figure(results: Results) -> Chart | None:
    """A panel a task, or nothing where none but passkey was evaluated."""
    evaluations = [evaluation for name, evaluation in results.evaluations.items() if name != "passkey"]
    if not evaluations:
        return None
    figure = Figure(figsize=(WIDTH, 0.5 + 3.2 * len(evaluations)), layout="constrained")
    panels = figure.subplots(len(evaluations), squeeze=False)[:, 0]
    drawn = [_lines(evaluation) for evaluation in evaluations]
    styles = styles_of(label for lines in drawn for label in lines)
    handles = {}
    for axes, evaluation, lines in zip(panels, evaluations, drawn, strict=True):
        for label, points in lines.items():
            handles[label] = _draw(axes, points, styles[label])
        _finish(axes, evaluation)
    legend_on_top(figure, [(handle, label) for label, handle in handles.items()])
    columns, rows = csv_table(evaluations)
    return Chart(
        name="tasks",
        title="Tasks by length",
        caption=CAPTION.format(confidence=evaluations[0].confidence, most=len(OTHERS)),
        figure=figure,
        columns=columns,
        rows=rows,
    )


def _lines(evaluation: TaskEvaluation) -> dict[str, list[_Point]]:
    """Label -> points by length; where there are too many lines to be told apart, their mean alone."""
    lines: dict[str, list[TaskCell]] = {}
    for cell in evaluation.cells:
        lines.setdefault(f"{evaluation.task} {_swept(cell)}".strip(), []).append(cell)
    if len(lines) > len(OTHERS):
        lines = {f"{evaluation.task}, mean of {len(lines)}": list(evaluation.cells)}
    return {label: list(_points(evaluation, cells)) for label, cells in lines.items()}


def _points(evaluation: TaskEvaluation, cells: Sequence[TaskCell]) -> Iterator[_Point]:
    for length in sorted({cell.parameters["length"] for cell in cells}):
        here = [cell for cell in cells if cell.parameters["length"] == length]
        yield _Point(length, _mean(evaluation, here), fmean(best_floor(cell) for cell in here))


def _mean(evaluation: TaskEvaluation, cells: Sequence[TaskCell]) -> Score:
    """One cell's own score; of several the mean of theirs, with an interval that is made from theirs.

    It is that of Zou & Donner (2008, "MOVER"): each end's distances from the means add up in squares. So where all
    cells came out at 0 or at 1 the interval keeps the width that so few examples leave, as the cells' own do.
    """
    scores = [cell.scores[evaluation.measures[0]] for cell in cells]
    mean = fmean(score.mean for score in scores)
    below = math.sqrt(sum((score.mean - score.lower) ** 2 for score in scores)) / len(scores)
    above = math.sqrt(sum((score.upper - score.mean) ** 2 for score in scores)) / len(scores)
    return Score(mean=mean, lower=mean - below, upper=mean + above)


def _draw(axes: Axes, points: Sequence[_Point], style: Style) -> Line2D:
    lengths = [max(point.length, 1) for point in points]  # a log axis has no zero
    scores = [point.score for point in points]
    (line,) = axes.plot(
        *(lengths, [score.mean for score in scores]),
        color=style.colour,
        linestyle=style.dashes,
        linewidth=2.0,
        marker=style.marker,
        markersize=5.5,
    )
    lower, upper = [score.lower for score in scores], [score.upper for score in scores]
    axes.fill_between(lengths, lower, upper, color=style.colour, alpha=0.15, linewidth=0)
    axes.plot(lengths, [point.floor for point in points], color=style.colour, linestyle=":", linewidth=1.2)
    return line


def _finish(axes: Axes, evaluation: TaskEvaluation) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted({max(cell.parameters["length"], 1) for cell in evaluation.cells}))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylim(-0.03, 1.03)
    axes.grid(visible=True, axis="y")
    axes.set_xlabel(f"length ({evaluation.length_is})")
    axes.set_ylabel(f"{evaluation.task}: {evaluation.measures[0].replace('_', ' ')}")


def _swept(cell: TaskCell) -> str:
    """What sets a cell apart from others of its length, in words."""
    others = {name: value for name, value in cell.parameters.items() if name != "length" and value is not None}
    return ", ".join(f"{name} {value}" if not isinstance(value, str) else value for name, value in others.items())
