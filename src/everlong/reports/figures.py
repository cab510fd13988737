"""All figures of a run, drawn from its records and written to figures/."""

from pathlib import Path

from everlong.reports._chart import DrawnChart, drawing, write_chart
from everlong.reports._results import Results
from everlong.reports.decay_figure import decay_figure
from everlong.reports.distance_figure import distance_figure
from everlong.reports.excess_figure import excess_figure
from everlong.reports.experiment_figure import experiment_figure
from everlong.reports.exposure_figure import exposure_figure
from everlong.reports.growth_figure import growth_figure
from everlong.reports.heads_figure import heads_figure
from everlong.reports.loss_figure import loss_figure
from everlong.reports.memory_figure import memory_figure
from everlong.reports.paper_figure import paper_figure
from everlong.reports.passkey_figure import passkey_figure
from everlong.reports.remembrance_figure import remembrance_figure
from everlong.reports.state_figure import state_figure
from everlong.reports.task_figure import task_figure
from everlong.reports.training_figure import training_figure
from everlong.reports.transplant_figure import transplant_figure

FIGURES = (
    experiment_figure,
    loss_figure,
    excess_figure,
    remembrance_figure,
    memory_figure,
    state_figure,
    heads_figure,
    transplant_figure,
    distance_figure,
    decay_figure,
    growth_figure,
    passkey_figure,
    task_figure,
    exposure_figure,
    training_figure,
)
"""In the order of the page; a figure whose records are not there is left out."""


def write_figures(results: Results, folder: Path, *, paper: bool = False) -> tuple[DrawnChart, ...]:
    """Writes each figure as SVG, PDF and CSV into ``folder``, and returns them for the page.

    Args:
        results: of a run.
        folder: figures/ of the run.
        paper: whether to draw the run beside the paper's own curves, too.
    """
    with drawing():
        charts = [draw(results) for draw in (*FIGURES, *((paper_figure,) if paper else ()))]
        return tuple(write_chart(chart, folder) for chart in charts if chart is not None)
