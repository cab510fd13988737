"""The loss of each arm while it was trained."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from everlong.reports._axes import legend_on_top
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._results import Results
from everlong.reports._styles import styles_of

CAPTION = (
    "Training loss by step: pale, every step; full, the mean over the last {span} steps. The arms "
    "differ in the state that a row starts from."
)


def training_figure(results: Results) -> Chart | None:
    """The figure, or nothing where no step was logged."""
    losses = {label: points for label, points in results.losses.items() if points}
    if not losses:
        return None
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes = figure.add_subplot()
    styles = styles_of(results.labels)
    span = max(1, max(len(points) for points in losses.values()) // 20)
    for label, points in losses.items():
        style, (steps, values) = styles[label], np.array(points).T
        axes.plot(steps, values, color=style.colour, alpha=0.28, linewidth=0.9)
        axes.plot(
            *(steps, _trailing_means(values, span)),
            color=style.colour,
            linestyle=style.dashes,
            linewidth=2.1,
            label=results.name(label),
            marker=style.marker,
            markersize=5.5,
            markevery=max(1, len(steps) // 8),
        )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=True, axis="y")
    axes.set_axisbelow(True)
    axes.set_xlabel("step")
    axes.set_ylabel("training loss (nats a token)")
    legend_on_top(figure, zip(*axes.get_legend_handles_labels(), strict=True))
    return Chart(
        name="training-loss",
        title="Training loss",
        caption=CAPTION.format(span=span) if len(losses) > 1 else CAPTION.format(span=span).split(" The arms")[0],
        figure=figure,
        columns=("label", "step", "loss"),
        rows=tuple((label, step, loss) for label, points in losses.items() for step, loss in points),
    )


def _trailing_means(values: np.ndarray, span: int) -> np.ndarray:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    stops = np.arange(1, len(values) + 1)
    starts = np.maximum(stops - span, 0)
    return (sums[stops] - sums[starts]) / (stops - starts)
