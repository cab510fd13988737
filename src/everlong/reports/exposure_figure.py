"""How often training met old states."""

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from everlong.reports._axes import legend_on_top, name_training_length, token_axis
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._results import Results
from everlong.reports._styles import styles_of

CAPTION = (
    "Scored tokens of training whose state was at least so old, an age counted in tokens since the state was zero; "
    "each token counts by the learning rate at its step over the highest one. An arm that starts every row from zero "
    "meets no state older than a row."
)


def exposure_figure(results: Results) -> Chart | None:
    """The figure, or nothing where nothing was trained."""
    drawn = {label: training.exposure for label, training in results.trainings.items() if any(training.exposure.tokens)}
    if not drawn:
        return None
    context = results.base.context if results.base else None
    figure = Figure(figsize=(WIDTH, 3.6), layout="constrained")
    axes = figure.add_subplot()
    styles = styles_of(results.labels)
    oldest = max(max(exposure.ages) for exposure in drawn.values())
    youngest = min(min(exposure.ages) for exposure in drawn.values())
    # of a single step all that is counted is age 0: an axis needs some width all the same
    token_axis(axes, max(float(youngest), 1.0), max(oldest, context or 2) * 1.04, context, "age of the state in tokens")
    for label, exposure in drawn.items():
        style = styles[label]
        # A log axis has no zero: a line ends at the last age that was met.
        points = [(max(age, 1), count) for age, count in zip(exposure.ages, exposure.tokens, strict=True) if count > 0]
        axes.plot(
            *zip(*points, strict=True),
            color=style.colour,
            linestyle=style.dashes,
            linewidth=2.1,
            label=results.name(label),
            marker=style.marker,
            markersize=5.5,
        )
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(max(min(low, high / 300), 0.5), high)
    axes.yaxis.set_major_locator(LogLocator(base=10, numticks=7))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylabel("scored tokens (weighted)")
    if context:
        name_training_length(axes, context)
    legend_on_top(figure, zip(*axes.get_legend_handles_labels(), strict=True))
    return Chart(
        name="exposure",
        title="What training met",
        caption=CAPTION,
        figure=figure,
        columns=("label", "age", "weighted_scored_tokens", "scored_tokens"),
        rows=tuple(
            (label, age, count, exposure.scored_tokens)
            for label, exposure in drawn.items()
            for age, count in zip(exposure.ages, exposure.tokens, strict=True)
        ),
    )
