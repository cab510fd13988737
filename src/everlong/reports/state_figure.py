"""The standard deviation of the full state against position (paper's Fig. 4), and how much of the state is common."""

from matplotlib.figure import Figure

from everlong.records.measurements import StateStatistics
from everlong.reports._axes import legend_on_top, name_training_length, token_axis
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._curves import INTERVAL, cells, draw_curve, entries, log_scale
from everlong.reports._results import Results
from everlong.reports._styles import styles_of

CAPTION = (
    "Standard deviation over all elements of the recurrent state, all layers together, as in the paper's Fig. 4. It "
    "mixes two things, which the second panel parts: the share of the state's second moment that is the same in every "
    "document (the mean matrix), the rest being what the document has put there. Bands are {confidence:.0%} intervals "
    "over {documents} documents. The dotted line is the training length."
)
STATISTICS = ("mean", "std", "rms", "largest")


def state_figure(results: Results) -> Chart | None:
    """The figure, or nothing where the state was not looked at."""
    records: dict[str, StateStatistics] = results.measures["state_statistics"]
    if not records:
        return None
    basis = next(iter(records.values())).basis
    figure = Figure(figsize=(WIDTH, 5.6), layout="constrained")
    spread, share = figure.subplots(2, 1)
    styles = styles_of(results.labels)
    farthest = max(record.positions[-1] for record in records.values())
    for axes in (spread, share):
        token_axis(axes, 1.0, farthest * 1.1, basis.context, "tokens read")
    for label, record in records.items():
        style, name = styles[label], results.name(label)
        draw_curve(spread, record.positions, record.full["std"], style, name, positive=True)
        draw_curve(share, record.positions, record.mean_share, style, name)
    log_scale(spread, "std of the full state")
    share.set_ylim(-0.02, 1.02)
    share.set_ylabel("share common to all documents")
    name_training_length(spread, basis.context)
    legend_on_top(figure, entries(figure.axes))
    return Chart(
        name="state-std",
        title="The full state against position",
        caption=CAPTION.format(confidence=basis.confidence, documents=len(basis.documents)),
        figure=figure,
        columns=("label", "statistic", "tokens_read", *INTERVAL),
        rows=tuple(
            (label, statistic, position, *cells(values, index))
            for label, record in records.items()
            for statistic, values in {**record.full, "mean_share": record.mean_share}.items()
            for index, position in enumerate(record.positions)
        ),
    )
