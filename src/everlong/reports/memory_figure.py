"""How much context the models use: what a window of a width costs against the whole document."""

from matplotlib.figure import Figure

from everlong.records.measurements import UsedMemory
from everlong.reports._axes import legend_on_top, name_training_length, token_axis
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._curves import INTERVAL, cells, draw_curve, entries, symlog_scale
from everlong.reports._results import Results
from everlong.reports._styles import styles_of
from everlong.reports.excess_figure import BAND, tolerance_band

CAPTION = (
    "The loss of reading a window of so many tokens, from the zero state, minus that of reading the whole document; "
    "the same targets, in the second half of the length. Above zero, the whole document is the better context; where "
    "the line comes down to the shaded tolerance, a window is as good, and what lies further back is not used. Below "
    "it, the whole document harms. Bands are {confidence:.0%} intervals over documents, for all widths at once."
)


def memory_figure(results: Results) -> Chart | None:
    """The figure, or nothing where it was not measured."""
    records: dict[str, UsedMemory] = results.measures["used_memory"]
    if not records:
        return None
    basis = next(iter(records.values())).basis
    widest = max(record.widths[-1] for record in records.values())
    figure = Figure(figsize=(WIDTH, 4.0), layout="constrained")
    axes, styles = figure.add_subplot(), styles_of(results.labels)
    token_axis(axes, 0.9, widest * 1.15, basis.context, "width of the window in tokens")
    axes.axhspan(-basis.tolerance, basis.tolerance, zorder=0.5, **BAND)
    for label, record in records.items():
        draw_curve(axes, record.widths, record.over_full, styles[label], results.name(label))
    symlog_scale(axes, "window minus whole (nats a token)")
    name_training_length(axes, basis.context)
    band = (tolerance_band(), f"tolerance, {basis.tolerance:g} nats")
    legend_on_top(figure, [*entries(figure.axes), band])
    return Chart(
        name="used-memory",
        title="Used memory",
        caption=CAPTION.format(confidence=basis.confidence),
        figure=figure,
        columns=("label", "width", *INTERVAL),
        rows=tuple(
            (label, width, *cells(record.over_full, index))
            for label, record in records.items()
            for index, width in enumerate(record.widths)
        ),
    )
