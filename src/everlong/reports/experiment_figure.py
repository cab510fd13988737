"""The excess of each arm over several bases, by position."""

from matplotlib.figure import Figure

from everlong.reports._axes import legend_on_top, name_training_length, token_axis
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._results import Results
from everlong.reports._styles import styles_of
from everlong.reports.excess_figure import Ranges, draw_panel, tolerance_band

CAPTION = (
    "Paired excess loss against the model's own window of {context} tokens, the mean over {bases} bases of {seeds} "
    "seeds each. Bars are {confidence:.0%} intervals over bases, for all ranges at once; the shaded band is the "
    "tolerance of {tolerance:g} nats. Up to 0.1 the axis is linear, beyond it logarithmic."
)


def experiment_figure(results: Results) -> Chart | None:
    """The figure, or nothing where a run is no finished experiment."""
    experiment = results.experiment
    if experiment is None:
        return None
    figure = Figure(figsize=(WIDTH, 4.4), layout="constrained")
    axes, styles = figure.add_subplot(), styles_of(results.labels)
    token_axis(axes, max(float(experiment.starts[0]), 1.0), experiment.stops[-1] * 1.04, experiment.context, "")
    drawn = {}
    for arm in experiment.arms:
        values = arm.over_bases
        ranges = Ranges(experiment.starts, experiment.stops, values.mean, values.lower, values.upper)
        drawn[results.name(arm.label)] = (ranges, styles[arm.label])
    draw_panel(axes, drawn, experiment.tolerance)
    name_training_length(axes, experiment.context)
    axes.set_xlabel("position: tokens read before the target")
    entries = list(zip(*axes.get_legend_handles_labels(), strict=True))
    legend_on_top(figure, [*entries, (tolerance_band(), f"tolerance, {experiment.tolerance:g} nats")])
    return Chart(
        name="excess-over-bases",
        title="Paired excess loss over bases",
        caption=CAPTION.format(
            context=f"{experiment.context:,}",
            bases=len(experiment.bases),
            seeds=len(experiment.seeds),
            confidence=experiment.confidence,
            tolerance=experiment.tolerance,
        ),
        figure=figure,
        columns=("label", "base", "seed", "start", "stop", "excess", "in_range_perplexity"),
        rows=tuple(
            (
                *(arm.label, base, seed, start, stop),
                *(float(arm.excess[i, j, k]), float(arm.in_range_perplexity[i, j])),
            )
            for arm in experiment.arms
            for i, base in enumerate(experiment.bases)
            for j, seed in enumerate(experiment.seeds)
            for k, (start, stop) in enumerate(zip(experiment.starts, experiment.stops, strict=True))
        ),
    )
