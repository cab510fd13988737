"""For how long a write is remembered, head by head, and where that lets one expect the break."""

import numpy as np
from matplotlib.figure import Figure

from everlong.measurements import DecayHorizons
from everlong.reports._axes import legend_on_top, token_axis
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._curves import entries, log_scale
from everlong.reports._results import Results
from everlong.reports._styles import styles_of

CAPTION = (
    "First panel: tokens until a write into the slowest part of a head has fallen to 1/e, from the decays that the "
    "model really applied on this text; the heads of each model from the shortest to the longest. The dotted line is "
    "the training length: heads above it remember for longer than any row of training. At the top edge, the text of "
    "{length} tokens ended before. Second panel: the second moment of the state that grows most, over that at the "
    "training length, extrapolated from what is seen within the training length alone; where it is {bound:g}, a break "
    "is predicted ({predicted}). It is a hypothesis, to be set against measured breaks of several models."
)


def decay_figure(results: Results) -> Chart | None:
    """The figure, or nothing where decays were not followed."""
    records: dict[str, DecayHorizons] = results.measures["decay_horizons"]
    if not records:
        return None
    first = next(iter(records.values()))
    context, length = first.basis.context, max(record.basis.length for record in records.values())
    figure = Figure(figsize=(WIDTH, 6.2), layout="constrained")
    horizons, growth = figure.subplots(2, 1)
    styles = styles_of(results.labels)
    token_axis(growth, float(context), length * 1.1, context, "tokens read")
    for label, record in records.items():
        style, name = styles[label], results.name(label)
        look = {
            "color": style.colour,
            "linestyle": style.dashes,
            "marker": style.marker,
            "label": name,
            "linewidth": 1.8,
        }
        slowest = np.sort(np.minimum(np.maximum(record.slowest[0], 1), length))
        horizons.plot(range(1, len(slowest) + 1), slowest, markersize=4, **look)
        grown = record.growth.max(axis=0)
        every = max(1, len(grown) // 10)
        growth.plot(record.growth_positions, grown, markersize=5, markevery=every, **look)
    log_scale(horizons, "tokens to 1/e")
    horizons.axhline(context, color="#444444", linestyle=":", linewidth=1.4)
    horizons.set_xlabel("heads, from the fastest to the slowest")
    growth.axhline(first.growth_bound, color="#666666", linewidth=0.9)
    log_scale(growth, "second moment over that at T")
    for axes, height, words in (
        (horizons, context, f"training length {context:,}"),
        (growth, first.growth_bound, "predicted break"),
    ):
        axes.annotate(
            *(words, (0.99, height)),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            ha="right",
            textcoords="offset points",
            fontsize=9.5,
            color="#444444",
        )
    legend_on_top(figure, entries([horizons]))
    predicted = "; ".join(
        f"{results.name(label)}: " + (f"{record.predicted_break:,} tokens" if record.predicted_break else "nowhere")
        for label, record in records.items()
    )
    return Chart(
        name="decay-horizons",
        title="Decay horizons and the predicted break",
        caption=CAPTION.format(length=f"{length:,}", bound=first.growth_bound, predicted=predicted),
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
