"""All figures of a run, drawn from its records and written to figures/."""

from pathlib import Path

from everlong.reports._chart import DrawnChart, drawing, write_chart
from everlong.reports._results import Results
from everlong.reports.excess_figure import excess_figure
from everlong.reports.experiment_figure import experiment_figure
from everlong.reports.exposure_figure import exposure_figure
from everlong.reports.loss_figure import loss_figure
from everlong.reports.passkey_figure import passkey_figure
from everlong.reports.task_figure import task_figure
from everlong.reports.training_figure import training_figure

FIGURES = (
    experiment_figure,
    loss_figure,
    excess_figure,
    passkey_figure,
    task_figure,
    exposure_figure,
    training_figure,
)
"""In the order of the page; a figure whose records are not there is left out."""


def write_figures(results: Results, folder: Path) -> tuple[DrawnChart, ...]:
    """Writes each figure as SVG, PDF and CSV into ``folder``, and returns them for the page."""
    with drawing():
        charts = [draw(results) for draw in FIGURES]
        return tuple(write_chart(chart, folder) for chart in charts if chart is not None)
