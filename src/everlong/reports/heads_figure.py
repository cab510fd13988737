"""The heads whose state leaves its in-range law farthest (paper's Fig. 9)."""

import numpy as np
from matplotlib.figure import Figure

from everlong.records.measurements import StateStatistics
from everlong.reports._axes import legend_on_top, token_axis
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._curves import INTERVAL, cells, draw_curve, entries, log_scale
from everlong.reports._results import Results
from everlong.reports._styles import styles_of
from everlong.reports.findings import head_name

COLUMNS = 2
CAPTION = (
    "Standard deviation of the state of the {count} heads of {base} that leave farthest the band they keep to in the "
    "second half of the training length; LxHy is head y of layer x, counted from 0. {others}The dotted line is the "
    "training length. Bands are {confidence:.0%} intervals over documents, each alone. They are chosen for leaving "
    "it: other heads leave it less, and stand in the data."
)


def heads_figure(results: Results) -> Chart | None:
    """The figure, or nothing where the state was not looked at."""
    records: dict[str, StateStatistics] = results.measures["state_statistics"]
    if not records:
        return None
    first, base = next(iter(records.items()))
    alike = {k: v for k, v in records.items() if (v.layers, v.heads) == (base.layers, base.heads)}
    rows = int(np.ceil(len(base.worst) / COLUMNS))
    figure = Figure(figsize=(WIDTH, 0.6 + 2.2 * rows), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, squeeze=False, sharex=True).ravel()
    styles = styles_of(results.labels)
    for axes in panels[len(base.worst) :]:
        axes.set_visible(False)
    for index, (axes, head) in enumerate(zip(panels, base.worst, strict=False)):
        last_row = index + COLUMNS >= len(base.worst)
        token_axis(axes, 1.0, base.positions[-1] * 1.1, base.basis.context, "tokens read" if last_row else "")
        axes.set_xticks(list(axes.get_xticks())[::2])  # half as wide as other figures
        axes.tick_params(axis="x", labelsize=9)
        axes.set_title(head_name(base.layers[head], base.heads[head]))
        for label, record in alike.items():
            draw_curve(
                *(axes, record.positions, record.by_head["std"], styles[label], results.name(label)),
                column=head,
                positive=True,
            )
        log_scale(axes, "std of the head" if index % COLUMNS == 0 else "")
    legend_on_top(figure, entries(figure.axes[:1]))
    return Chart(
        name="worst-heads",
        title="The heads that leave their law",
        caption=CAPTION.format(
            count=len(base.worst),
            base=results.name(first),
            others="The same heads of the other models are drawn beside them. " if len(alike) > 1 else "",
            confidence=base.basis.confidence,
        ),
        figure=figure,
        columns=("label", "layer", "head", "departure", "tokens_read", *INTERVAL),
        rows=tuple(
            (label, layer, head, float(record.departure.mean[i]), position, *cells(record.by_head["std"], (at, i)))
            for label, record in records.items()
            for i, (layer, head) in enumerate(zip(record.layers, record.heads, strict=True))
            for at, position in enumerate(record.positions)
        ),
    )
