"""Effective remembrance: how much what is predicted depends on the far past, and whether for good (paper's Fig. 1)."""

import numpy as np
from matplotlib.figure import Figure

from everlong.records.measurements import Remembrance
from everlong.reports._axes import legend_on_top, name_training_length, token_axis
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._curves import INTERVAL, cells, draw_curve, entries, log_scale, symlog_scale
from everlong.reports._results import Results
from everlong.reports._styles import styles_of

MOST_ENDS = 3
CAPTION = (
    "How far the prediction after T + 1 tokens moves, in total variation, when the first t tokens are left out and "
    "the rest is read from the zero state: effective remembrance, as in the paper. Towards the left only the "
    "beginning is forgotten. It is sensitivity, not quality; so the last panel asks whether what lies further back "
    "than so many tokens helps (above zero) or harms (below) the prediction of the true next token, at the largest T."
    " Bands are {confidence:.0%} intervals over documents, for all starts at once. The dotted line is the training "
    "length. Other distances stand in the data."
)


def remembrance_figure(results: Results) -> Chart | None:
    """The figure, or nothing where it was not measured."""
    records: dict[str, Remembrance] = results.measures["effective_remembrance"]
    if not records:
        return None
    ends = sorted({at.end for record in records.values() for at in record.ends})
    shown = ends[-MOST_ENDS:]
    basis = next(iter(records.values())).basis
    figure = Figure(figsize=(WIDTH, 0.6 + 2.5 * (len(shown) + 1)), layout="constrained")
    *panels, last = figure.subplots(len(shown) + 1, squeeze=False)[:, 0]
    styles = styles_of(results.labels)
    for axes, end in zip(panels, shown, strict=True):
        token_axis(axes, 1.0, end * 1.1, basis.context, "t: tokens left out at the beginning")
        axes.set_title(f"T = {end:,}")
    token_axis(last, 1.0, shown[-1] * 1.1, basis.context, "tokens kept before the target")
    last.set_title("What lies further back is worth")
    for label, record in records.items():
        style, name = styles[label], results.name(label)
        for at in record.ends:
            if at.end in shown:
                draw_curve(
                    *(panels[shown.index(at.end)], at.starts, at.estimates["total_variation"], style, name),
                    positive=True,
                )
            if at.end == shown[-1]:
                kept = at.end + 1 - np.array(at.starts)
                draw_curve(last, np.maximum(kept, 1), at.estimates["signed"], style, name)
    for axes in panels:
        log_scale(axes, "total variation")
        low, high = axes.get_ylim()
        axes.set_ylim(max(low, 1e-4), min(high, 1.5))
    symlog_scale(last, "nats a token")
    name_training_length(panels[0], basis.context)
    legend_on_top(figure, entries(figure.axes))
    return Chart(
        name="effective-remembrance",
        title="Effective remembrance",
        caption=CAPTION.format(confidence=basis.confidence),
        figure=figure,
        columns=("label", "distance", "T", "t", *INTERVAL),
        rows=tuple(
            (label, distance, at.end, start, *cells(values, index))
            for label, record in records.items()
            for at in record.ends
            for distance, values in at.estimates.items()
            for index, start in enumerate(at.starts)
        ),
    )
