"""Loss and perplexity against position: every model with its state carried, the first under the other policies too."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from everlong.records.diagnosis import Curve, Diagnosis
from everlong.reports._axes import legend_on_top, name_training_length, token_axis
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._results import Results, mean_losses
from everlong.reports._styles import RECENTRED, RESTART, Style, styles_of, window_style
from everlong.reports._words import policy_name

CAPTION = (
    "Mean loss of the next token against the number of tokens read before it; the perplexity is its exponential. "
    "Coloured lines: the state is carried from the document's beginning; the pale band is one standard error over "
    "documents at each position, and says little about differences, which the next figure pairs. Thin grey lines: how"
    " {base} reads when it is restarted, or shown a window only. {recentred}The dotted line is the training length: "
    "to its right the model reads further than it was ever trained to. The very first positions, where every model "
    "knows little, are left out of the picture and stand in its data."
)
RECENTRING = (
    "Open marks: the state is carried, and the drift of its mean taken away every {context} tokens (recentred: the "
    "loss of the own window plus the excess measured over it). "
)


def loss_figure(results: Results) -> Chart | None:
    """The figure, or nothing where no curve was measured."""
    base = results.base
    if base is None or not any(diagnosis.curves for diagnosis in results.diagnoses.values()):
        return None
    figure = Figure(figsize=(WIDTH, 4.7 + 0.2 * len(results.measures["mean_drift"])), layout="constrained")
    axes = figure.add_subplot()
    styles = styles_of(results.labels)
    rows: list[tuple] = []
    token_axis(
        axes, max(1.0, base.context / 8), base.length * 1.04, base.context, "position: tokens read before the target"
    )
    for curve, style in _references(base):
        name = f"{results.name(base.label)}: {policy_name(curve.policy, base.context)}"
        axes.plot(
            *(_middles(curve), mean_losses(curve.losses)),
            color=style.colour,
            linestyle=style.dashes,
            linewidth=1.15,
            label=name,
            zorder=2,
        )
        rows += _data(base.label, curve)
    for label, diagnosis in results.diagnoses.items():
        for curve in (curve for curve in diagnosis.curves if curve.policy == "carry"):
            _draw_carried(axes, curve, styles[label], f"{results.name(label)}: carry")
            rows += _data(label, curve)
        rows += _draw_recentred(axes, results, diagnosis, styles[label])
    axes.set_ylabel("loss (nats a token)")
    _fit_losses(axes)
    _add_perplexity(axes)
    name_training_length(axes, base.context)
    _add_legend(figure, axes)
    return Chart(
        name="loss-by-position",
        title="Loss against position",
        caption=CAPTION.format(
            base="the model before repair" if results.name(base.label) == "Before repair" else results.name(base.label),
            recentred=RECENTRING.format(context=f"{base.context:,}") if results.measures["mean_drift"] else "",
        ),
        figure=figure,
        columns=("label", "policy", "start", "stop", "mean_loss", "perplexity", "standard_error", "documents"),
        rows=tuple(rows),
    )


def _draw_carried(axes: Axes, curve: Curve, style: Style, name: str) -> None:
    middles, means, errors = _middles(curve), mean_losses(curve.losses), _standard_errors(curve.losses)
    axes.fill_between(middles, means - errors, means + errors, color=style.colour, alpha=0.13, linewidth=0)
    axes.plot(
        *(middles, means),
        color=style.colour,
        linestyle=style.dashes,
        linewidth=2.1,
        label=name,
        zorder=3,
        marker=style.marker,
        markersize=5.5,
        markevery=(len(middles) % 4, 4),
    )


def _draw_recentred(axes: Axes, results: Results, diagnosis: Diagnosis, style: Style) -> list[tuple]:
    """Recentring, where it was measured: bucket by bucket, over the same buckets as the own window's curve."""
    record = results.measures["mean_drift"].get(diagnosis.label)
    windows = [curve for curve in diagnosis.curves if curve.policy == f"window:{diagnosis.context}"]
    if record is None or not windows or windows[0].starts != record.starts:
        return []
    losses = mean_losses(windows[0].losses) + record.recentred.mean
    axes.plot(
        *(_middles(windows[0]), losses),
        color=style.colour,
        linestyle=RECENTRED,
        linewidth=1.3,
        marker=style.marker,
        markersize=6,
        markerfacecolor="white",
        label=f"{results.name(diagnosis.label)}: recentred",
        zorder=2.8,
    )
    return [
        (diagnosis.label, "recentre", start, stop, float(loss), float(np.exp(loss)), "", int(count))
        for start, stop, loss, count in zip(
            record.starts, record.stops, losses, record.recentred.documents, strict=True
        )
    ]


def _references(base: Diagnosis) -> list[tuple[Curve, Style]]:
    curves = {curve.policy: curve for curve in base.curves}
    windows = sorted((name for name in curves if name.startswith("window:")), key=lambda name: int(name.split(":")[1]))
    found = [(curves[name], window_style(index)) for index, name in enumerate(windows)]
    return [(curves["restart"], RESTART), *found] if "restart" in curves else found


def _fit_losses(axes: Axes) -> None:
    """Limits from what is to be seen: the loss of the first tokens would flatten all the rest."""
    left, right = axes.get_xlim()
    lines = [np.array(line.get_xydata()) for line in axes.get_lines() if len(np.array(line.get_xydata())) > 2]
    seen = np.concatenate([points[(points[:, 0] >= left) & (points[:, 0] <= right), 1] for points in lines])
    seen = seen[np.isfinite(seen)]
    if len(seen):
        margin = 0.07 * float(np.ptp(seen)) + 0.02
        axes.set_ylim(max(float(seen.min()) - margin, 0.0), float(seen.max()) + margin)


def _add_perplexity(axes: Axes) -> None:
    # With a floor, since an axis is asked for its inverse at limits of its own before it gets ours.
    right = axes.secondary_yaxis("right", functions=(np.exp, lambda value: np.log(np.maximum(value, 1e-9))))
    right.set_ylabel("perplexity")
    right.spines["right"].set_visible(True)


def _add_legend(figure: Figure, axes: Axes) -> None:
    handles, names = axes.get_legend_handles_labels()
    carried = [index for index, name in enumerate(names) if name.endswith(": carry")]
    order = [*carried, *(index for index in range(len(names)) if index not in carried)]
    legend_on_top(figure, [(handles[index], names[index]) for index in order])


def _middles(curve: Curve) -> np.ndarray:
    # start < t <= stop: the first position is start + 1.
    return np.sqrt((np.array(curve.starts, dtype=float) + 1) * np.array(curve.stops, dtype=float))


def _standard_errors(losses: np.ndarray) -> np.ndarray:
    there = np.isfinite(losses)
    documents = np.maximum(there.sum(axis=0), 1)
    apart = np.where(there, losses - mean_losses(losses), 0.0)
    return np.sqrt((apart**2).sum(axis=0) / np.maximum(documents - 1, 1) / documents)


def _data(label: str, curve: Curve) -> list[tuple]:
    means, errors = mean_losses(curve.losses), _standard_errors(curve.losses)
    documents = np.isfinite(curve.losses).sum(axis=0)
    return [
        (label, curve.policy, start, stop, float(mean), float(np.exp(mean)), float(error), int(count))
        for start, stop, mean, error, count in zip(curve.starts, curve.stops, means, errors, documents, strict=True)
    ]
