"""All other tasks: the score against the length, a line for each of what else was swept, as the paper's Fig. 6."""

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from everlong.records import TaskCell
from everlong.reports._axes import legend_on_top
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._results import Results
from everlong.reports._styles import styles_of

CAPTION = (
    "The first measure of each task against the length, with intervals of {confidence:.0%} a cell; dotted, the best "
    "floor: what a guess or a constant answer scores. Only a score above its floor says anything."
)


def task_figure(results: Results) -> Chart | None:
    """A panel a task, or nothing where none but passkey was evaluated."""
    evaluations = [evaluation for name, evaluation in results.evaluations.items() if name != "passkey"]
    if not evaluations:
        return None
    figure = Figure(figsize=(WIDTH, 0.5 + 3.2 * len(evaluations)), layout="constrained")
    panels = figure.subplots(len(evaluations), squeeze=False)[:, 0]
    handles, rows = {}, []
    for axes, evaluation in zip(panels, evaluations, strict=True):
        measure = evaluation.measures[0]
        lines: dict[str, list[TaskCell]] = {}
        for cell in evaluation.cells:
            lines.setdefault(_swept(cell), []).append(cell)
        styles = styles_of([f"{evaluation.task} {swept}".strip() for swept in lines])
        for (label, style), cells in zip(styles.items(), lines.values(), strict=True):
            cells.sort(key=lambda cell: cell.parameters["length"])
            scores = [cell.scores[measure] for cell in cells]
            lengths = [max(cell.parameters["length"], 1) for cell in cells]  # a log axis has no zero
            means = [score.mean for score in scores]
            look = {"color": style.colour, "marker": style.marker, "markersize": 5.5}
            (handles[label],) = axes.plot(lengths, means, linestyle=style.dashes, linewidth=2.0, **look)
            axes.fill_between(
                lengths,
                [s.lower for s in scores],
                [s.upper for s in scores],
                color=style.colour,
                alpha=0.15,
                linewidth=0,
            )
            floors = [max(cell.floors.values(), default=float("nan")) for cell in cells]
            axes.plot(lengths, floors, color=style.colour, linestyle=":", linewidth=1.2)
            rows += [
                (
                    evaluation.task,
                    _swept(cell),
                    cell.parameters["length"],
                    cell.examples,
                    s.mean,
                    s.lower,
                    s.upper,
                    floor,
                )
                for cell, s, floor in zip(cells, scores, floors, strict=True)
            ]
        axes.set_xscale("log", base=2)
        ticks = sorted({max(cell.parameters["length"], 1) for cell in evaluation.cells})
        axes.set_xticks(ticks)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_ylim(-0.03, 1.03)
        axes.grid(visible=True, axis="y")
        axes.set_xlabel(f"length ({evaluation.length_is})")
        axes.set_ylabel(f"{evaluation.task}: {measure.replace('_', ' ')}")
    legend_on_top(figure, [(handle, label) for label, handle in handles.items()])
    return Chart(
        name="tasks",
        title="Tasks by length",
        caption=CAPTION.format(confidence=evaluations[0].confidence),
        figure=figure,
        columns=("task", "swept", "length", "examples", "mean", "lower", "upper", "floor"),
        rows=tuple(rows),
    )


def _swept(cell: TaskCell) -> str:
    """What sets a cell apart from others of its length, in words."""
    others = {name: value for name, value in cell.parameters.items() if name != "length" and value is not None}
    return ", ".join(f"{name} {value}" if not isinstance(value, str) else value for name, value in others.items())
