"""All tasks but passkey: the score against the length, a line for each setting, as the paper's Fig. 6."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from everlong.records.tasks import Score, TaskCell, TaskEvaluation
from everlong.reports._axes import legend_on_top
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._results import Results
from everlong.reports._styles import OTHERS, Style, styles_of

CAPTION = (
    "The first measure of each task against the length, with intervals of {confidence:.0%} a point; dotted, the best "
    "floor: what a guess or a constant answer scores. Only a score above its floor says anything. Of more than {most} "
    "lines in a panel their mean is drawn; the CSV has them all."
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
    return Chart(
        name="tasks",
        title="Tasks by length",
        caption=CAPTION.format(confidence=evaluations[0].confidence, most=len(OTHERS)),
        figure=figure,
        columns=("task", "swept", "length", "examples", "mean", "lower", "upper", "floor"),
        rows=tuple(row for evaluation in evaluations for row in _rows(evaluation)),
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
        yield _Point(length, _mean(evaluation, here), fmean(_floor(cell) for cell in here))


def _mean(evaluation: TaskEvaluation, cells: Sequence[TaskCell]) -> Score:
    """One cell's own score; of several the mean of theirs, with a normal interval over the examples in each."""
    measure = evaluation.measures[0]
    if len(cells) == 1:
        return cells[0].scores[measure]
    mean = fmean(cell.scores[measure].mean for cell in cells)
    variance = sum(cell.values[measure].var() / cell.examples for cell in cells) / len(cells) ** 2
    half = NormalDist().inv_cdf(0.5 + evaluation.confidence / 2) * math.sqrt(variance)
    return Score(mean=mean, lower=mean - half, upper=mean + half)


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


def _rows(evaluation: TaskEvaluation) -> Iterator[tuple]:
    for cell in evaluation.cells:
        score = cell.scores[evaluation.measures[0]]
        values = (score.mean, score.lower, score.upper, _floor(cell))
        yield (evaluation.task, _swept(cell), cell.parameters["length"], cell.examples, *values)


def _floor(cell: TaskCell) -> float:
    return max(cell.floors.values(), default=float("nan"))


def _swept(cell: TaskCell) -> str:
    """What sets a cell apart from others of its length, in words."""
    others = {name: value for name, value in cell.parameters.items() if name != "length" and value is not None}
    return ", ".join(f"{name} {value}" if not isinstance(value, str) else value for name, value in others.items())
