"""For how long a write is remembered, head by head."""

import numpy as np
from matplotlib.figure import Figure

from everlong.records.measurements import DecayHorizons
from everlong.reports._axes import legend_on_top
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._curves import entries, log_scale, name_height
from everlong.reports._results import Results
from everlong.reports._styles import styles_of

CAPTION = (
    "Tokens until a write into the slowest part of a head has fallen to 1/e, from the decays that the model really "
    "applied on this text; the heads of each model from the shortest to the longest. The dotted line is the training "
    "length: heads above it remember for longer than any row of training. At the top edge, the text of {length} "
    "tokens ended before. The fall to 1 %, medians and sums of log-decays stand in the data."
)


def decay_figure(results: Results) -> Chart | None:
    """The figure, or nothing where decays were not followed."""
    records: dict[str, DecayHorizons] = results.measures["decay_horizons"]
    if not records:
        return None
    context = next(iter(records.values())).basis.context
    length = max(record.basis.length for record in records.values())
    figure = Figure(figsize=(WIDTH, 3.5), layout="constrained")
    axes, styles = figure.add_subplot(), styles_of(results.labels)
    for label, record in records.items():
        style = styles[label]
        slowest = np.sort(np.minimum(np.maximum(record.slowest[0], 1), length))
        axes.plot(
            *(range(1, len(slowest) + 1), slowest),
            color=style.colour,
            linestyle=style.dashes,
            marker=style.marker,
            markersize=4,
            linewidth=1.8,
            label=results.name(label),
        )
    log_scale(axes, "tokens to 1/e")
    axes.axhline(context, color="#444444", linestyle=":", linewidth=1.4)
    axes.set_xlabel("heads, from the fastest to the slowest")
    name_height(axes, float(context), f"training length {context:,}")
    legend_on_top(figure, entries([axes]))
    return Chart(
        name="decay-horizons",
        title="Decay horizons",
        caption=CAPTION.format(length=f"{length:,}"),
        figure=figure,
        columns=("label", "layer", "head", "threshold", "median", "slowest", "log_decay_context", "log_decay_length"),
        rows=tuple(
            (
                *(label, layer, head, threshold, float(record.median[t, i]), float(record.slowest[t, i])),
                *(float(record.log_decay_context.mean[i]), float(record.log_decay_length.mean[i])),
            )
            for label, record in records.items()
            for t, threshold in enumerate(record.thresholds)
            for i, (layer, head) in enumerate(zip(record.layers, record.heads, strict=True))
        ),
    )
