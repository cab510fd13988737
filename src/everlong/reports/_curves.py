"""A curve with its interval, drawn and written down the same way in every figure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from everlong.records.measurements import Estimate
from everlong.reports._styles import Style

INTERVAL = ("mean", "lower", "upper", "documents")
"""The columns that ``cells`` fills."""
SYMLOG_TICKS = (-10, -3, -1, -0.3, -0.1, -0.05, 0, 0.05, 0.1, 0.3, 1, 3, 10)
PLAIN = FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1000 else f"{value:.3g}")
"""Numbers as they are: mathematical notation would need a parser that names of models must not meet."""


def draw_curve(
    axes: Axes,
    places: Sequence[int] | np.ndarray,
    values: Estimate,
    style: Style,
    name: str,
    *,
    column: int | None = None,
    positive: bool = False,
) -> None:
    """A line with markers and its interval as a pale band.

    Args:
        axes: to draw on.
        places: along the horizontal axis.
        values: [places], or [places, columns].
        style: of the model.
        name: for the legend.
        column: of the values, where they have columns.
        positive: the axis is logarithmic and has no place for zero; what is not above it is left out.
    """
    mean, lower, upper = (_pick(part, column) for part in (values.mean, values.lower, values.upper))
    there = np.isfinite(mean) & ((mean > 0) | (not positive))
    places = np.asarray(places, dtype=float)[there]
    if not len(places):
        return
    mean, lower, upper = mean[there], lower[there], upper[there]
    lower = np.where(np.isfinite(lower), lower, mean)
    upper = np.where(np.isfinite(upper), upper, mean)
    if positive:
        lower = np.maximum(lower, np.finfo(float).tiny)
    axes.fill_between(places, lower, upper, color=style.colour, alpha=0.15, linewidth=0, zorder=2)
    axes.plot(
        *(places, mean),
        color=style.colour,
        linestyle=style.dashes,
        linewidth=2.0,
        marker=style.marker,
        markersize=5,
        markevery=max(1, len(places) // 12),
        label=name,
        zorder=3,
    )


def cells(values: Estimate, index: Any) -> tuple[float, float, float, int]:
    """Mean, lower and upper end and documents of one value, for the CSV."""
    mean, lower, upper = (float(part[index]) for part in (values.mean, values.lower, values.upper))
    return mean, lower, upper, int(values.documents[index])


def log_scale(axes: Axes, label: str) -> None:
    """A logarithmic vertical axis with plain numbers; 1, 2 and 5 where it spans little."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()] or [np.ones(1)])
    drawn = drawn[drawn > 0]
    if len(drawn):  # a band that reaches down to zero must not decide
        low, high = max(low, drawn.min() / 1.6), min(high, drawn.max() * 1.6)
        axes.set_ylim(low, high)
    decades = np.log10(high / low) if low > 0 else 9.0
    axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1.0, 2.0, 5.0) if decades < 2.5 else (1.0,), numticks=8))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(PLAIN)
    axes.set_ylabel(label)
    axes.grid(visible=True, axis="y")
    axes.set_axisbelow(True)


def name_height(axes: Axes, height: float, words: str) -> None:
    """Says at the right what a horizontal line is."""
    axes.annotate(
        words,
        xy=(0.99, height),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right",
        fontsize=9.5,
        color="#444444",
    )


def symlog_scale(axes: Axes, label: str) -> None:
    """A vertical axis in signed nats: linear to 0.1, logarithmic beyond."""
    axes.set_yscale("symlog", linthresh=0.1, linscale=1)
    drawn = np.concatenate([np.asarray(line.get_ydata(), dtype=float) for line in axes.get_lines()] or [np.zeros(1)])
    drawn = drawn[np.isfinite(drawn)]
    low, high = axes.get_ylim()  # its margins are a line's width where the axis is logarithmic: marks would be cut
    low, high = (min(low, 1.25 * drawn.min(initial=0)), max(high, 1.25 * drawn.max(initial=0)))
    low, high = min(low, -0.06), max(high, 0.06)
    axes.set_ylim(low, high)
    ticks = [tick for tick in SYMLOG_TICKS if low <= tick <= high]
    ticks = ticks if len(ticks) <= 9 else [tick for tick in ticks if tick in (-10, -1, -0.1, 0, 0.1, 1, 10)]
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:+g}" if value else "0"))
    axes.set_ylabel(label)
    axes.axhline(0, color="#222222", linewidth=1, zorder=1.6)
    axes.grid(visible=True, axis="y")
    axes.set_axisbelow(True)


def entries(all_axes: Iterable[Axes]) -> Iterator[tuple[Any, str]]:
    """What the axes have for a legend, each name once."""
    seen: set[str] = set()
    for axes in all_axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            if name not in seen:
                seen.add(name)
                yield handle, name


def _pick(values: np.ndarray, column: int | None) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    return values if column is None else values[:, column]
