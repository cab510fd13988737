"""Paired excess loss by position: each model against its own window, and against the control's best."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from everlong.records.diagnosis import Excess
from everlong.reports._axes import legend_on_top, name_training_length, token_axis
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._results import Results, mean_losses
from everlong.reports._styles import RECENTRED, RESTART, Style, styles_of

LINEAR_TO = 0.1
"""Nats up to which the axis is linear: the tolerance and a collapse must both be readable."""
BAND = {"facecolor": "#f0e442", "alpha": 0.35, "linewidth": 0}
TICKS = (-3, -1, -0.3, -0.1, -0.05, 0, 0.05, 0.1, 0.3, 1, 3, 10)
CAPTION = (
    "Paired excess loss: the loss with the state carried from the document's beginning, minus that of a reference, "
    "over the same targets. Above zero, reading on harms; zero, no better than restarting; below zero, it helps. "
    "First panel, the model's own window of {context} tokens: does the carried state harm? {second}{policies}Bars are"
    " {confidence:.0%} intervals over documents, for all buckets at once; the shaded band is the tolerance of "
    "{tolerance:g} nats. Up to 0.1 the axis is linear, beyond it logarithmic."
)
SECOND = (
    "Second panel, the best window of any width of the zero control, trained as long: would training on and restarting "
    "have done as well? Before repair, and for the control, the best window is their own. "
)
POLICIES = (
    "Beside the carried state, on the same axes: {base} restarted every {context} tokens (grey), and each model "
    "recentred, the drift of the mean state taken away every {context} tokens (open marks). "
)


class Ranges(NamedTuple):
    """What is drawn of an excess."""

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    mean: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]


def excess_figure(results: Results) -> Chart | None:
    """The figure, or nothing where no model was diagnosed."""
    base = results.base
    if base is None:
        return None
    own = {label: diagnosis.excess for label, diagnosis in results.diagnoses.items()}
    best = {row.label: row.control_best for row in results.repair.rows} if results.repair else {}
    panels = [("Against the model's own window", "own window", own)]
    if best:
        panels.append(("Against the control's best window", "control best", best))
    figure = Figure(
        figsize=(WIDTH, 0.9 + 2.9 * len(panels) + 0.35 * len(results.measures["mean_drift"])), layout="constrained"
    )
    styles = styles_of(results.labels)
    rows: list[tuple] = []
    for axes, (title, reference, excesses) in zip(
        np.atleast_1d(figure.subplots(len(panels), sharex=True)), panels, strict=True
    ):
        lowest = min(min(excess.starts) for excess in own.values())
        token_axis(axes, max(float(lowest), 1.0), base.length * 1.04, base.context, "")
        axes.set_title(title)
        draw_panel(axes, {results.name(k): (v, styles[k]) for k, v in excesses.items()}, base.verdict.tolerance)
        if reference == "own window":
            rows += _draw_policies(axes, results, styles)
        _name_sides(axes, base.verdict.tolerance, reference)
        for label, excess in excesses.items():
            rows += _data(label, reference, excess)
    name_training_length(figure.axes[0], base.context)
    figure.axes[-1].set_xlabel("position: tokens read before the target")
    entries = list(zip(*figure.axes[0].get_legend_handles_labels(), strict=True))
    models = {results.name(label) for label in results.labels}
    entries.sort(key=lambda entry: entry[1] not in models)  # the models first, then their other ways of reading
    legend_on_top(figure, [*entries, (tolerance_band(), f"tolerance, {base.verdict.tolerance:g} nats")])
    return Chart(
        name="excess-by-position",
        title="Paired excess loss",
        caption=CAPTION.format(
            context=f"{base.context:,}",
            second=SECOND if best else "",
            policies=POLICIES.format(base=results.name(base.label), context=f"{base.context:,}")
            if results.measures["mean_drift"]
            else "",
            confidence=base.excess.confidence,
            tolerance=base.verdict.tolerance,
        ),
        figure=figure,
        columns=(
            *("label", "against", "reference", "start", "stop", "mean", "lower", "upper"),
            *("documents", "targets", "confidence"),
        ),
        rows=tuple(rows),
    )


def _draw_policies(axes: Axes, results: Results, styles: Mapping[str, Style]) -> list[tuple]:
    """The other ways of reading, where recentring was measured: their excess over the own window; rows for the CSV."""
    records, rows = results.measures["mean_drift"], []
    for label, record in records.items():
        places = np.sqrt(np.maximum(np.array(record.starts, dtype=float), 1) * np.array(record.stops))
        style, name = styles[label], f"{results.name(label)}: recentred"
        axes.plot(
            *(places, record.recentred.mean),
            color=style.colour,
            linestyle=RECENTRED,
            linewidth=1.3,
            marker=style.marker,
            markersize=6,
            markerfacecolor="white",
            label=name,
            zorder=2.8,
        )
        values = (record.recentred.mean, record.recentred.lower, record.recentred.upper, record.recentred.documents)
        for start, stop, *numbers, documents in zip(record.starts, record.stops, *values, strict=True):
            numbers = [float(number) for number in numbers]
            confidence = record.basis.confidence
            rows.append((label, "own window, recentred", "", start, stop, *numbers, int(documents), "", confidence))
    base = results.base
    if records and base is not None and {"restart", f"window:{base.context}"} <= set(base.losses):
        apart = mean_losses(base.losses["restart"] - base.losses[f"window:{base.context}"], base.targets)
        places = np.sqrt(np.maximum(np.array(base.bucket_starts, dtype=float), 1) * np.array(base.bucket_stops))
        axes.plot(
            *(places, apart),
            color=RESTART.colour,
            linestyle=RESTART.dashes,
            linewidth=1.8,
            label=f"{results.name(base.label)}: restart every {base.context:,}",
            zorder=2,
        )
        for start, stop, value in zip(base.bucket_starts, base.bucket_stops, apart, strict=True):
            rows.append((base.label, "own window, restarted", "", start, stop, float(value), *("",) * 5))
    return rows


def draw_panel(axes: Axes, drawn: Mapping[str, tuple[Excess | Ranges, Style]], tolerance: float) -> None:
    """Means and intervals by range, a line a model, with the tolerance's band around zero."""
    axes.set_yscale("symlog", linthresh=LINEAR_TO, linscale=1)
    axes.axhspan(-tolerance, tolerance, zorder=0.5, **BAND)
    axes.axhline(0, color="#222222", linewidth=1, zorder=1.6)
    for index, (name, (excess, style)) in enumerate(drawn.items()):
        # Side by side within the bucket, so that bars of different models do not hide each other.
        share = 0.5 + 0.22 * (index - (len(drawn) - 1) / 2) * min(1, 3 / len(drawn))
        starts, stops = np.array(excess.starts, dtype=float), np.array(excess.stops, dtype=float)
        places = np.exp(np.log(np.maximum(starts, 1)) * (1 - share) + np.log(stops) * share)
        mean, lower, upper = (np.array(values) for values in (excess.mean, excess.lower, excess.upper))
        there = np.isfinite(mean)
        below, above = (np.nan_to_num(mean - lower)[there], np.nan_to_num(upper - mean)[there])
        axes.errorbar(
            *(places[there], mean[there]),
            yerr=np.maximum(np.array([below, above]), 0),
            color=style.colour,
            linestyle=style.dashes,
            linewidth=1.3,
            marker=style.marker,
            markersize=5.5,
            label=name,
            zorder=3,
            elinewidth=1.6,
            capsize=3,
            capthick=1.3,
        )
        axes.hlines(mean, np.maximum(starts, 1), stops, color=style.colour, alpha=0.25, linewidth=1.2)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, -0.11), max(high, 0.12))
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in TICKS if low <= tick <= high or abs(tick) <= 0.05]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
    axes.set_ylabel("excess (nats a token)")


def _name_sides(axes: Axes, tolerance: float, reference: str) -> None:
    """Says at the right edge which way is bad and which is good."""
    bad, good = ("harms →", "← helps") if reference == "own window" else ("worse →", "← pays")
    for height, words, align in ((1.6 * tolerance, bad, "bottom"), (-1.6 * tolerance, good, "top")):
        axes.annotate(
            *(words, (1.012, height)),
            xycoords=("axes fraction", "data"),
            rotation=90,
            va=align,
            fontsize=9.5,
            color="#444444",
        )


def tolerance_band() -> Patch:
    """The band, for a legend."""
    return Patch(**BAND)


def _data(label: str, against: str, excess: Excess) -> list[tuple]:
    return [
        (label, against, excess.reference, *bucket, excess.confidence)
        for bucket in zip(
            *(excess.starts, excess.stops, excess.mean, excess.lower, excess.upper, excess.documents, excess.targets),
            strict=True,
        )
    ]
