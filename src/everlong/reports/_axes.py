"""Axes that several figures share."""

import math
from collections.abc import Iterable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

MOST_TICKS = 7
LONGEST_NAME = 60


def powers(lowest: float, highest: float, through: int) -> list[float]:
    """Ticks a constant factor apart, of which one is ``through``, few enough to be read."""
    for step in (2, 4, 8, 16, 32, 64):
        first, last = (math.log(bound / through, step) for bound in (lowest, highest))
        exponents = range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1)
        if len(exponents) <= MOST_TICKS:
            break
    return [through * float(step) ** exponent for exponent in exponents]


def token_axis(axes: Axes, lowest: float, highest: float, context: int | None, label: str) -> None:
    """A log axis in tokens, on which a dotted line marks the training length."""
    axes.set_xscale("log", base=2)
    axes.set_xlim(lowest, highest)
    axes.xaxis.set_major_locator(FixedLocator(powers(lowest, highest, context or 1)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}"))
    axes.set_xlabel(label)
    axes.grid(visible=True, axis="y")
    axes.set_axisbelow(True)
    if context:
        axes.axvline(context, color="#444444", linestyle=":", linewidth=1.4, zorder=1.5)


def name_training_length(axes: Axes, context: int) -> None:
    """Says at the top of the dotted line what it is, on the side where there is more room."""
    low, high = axes.get_xlim()
    on_left = math.log(context / low) > 0.6 * math.log(high / low)
    axes.annotate(
        f"training length {context:,}",
        xy=(context, 1),
        xycoords=("data", "axes fraction"),
        xytext=(-4 if on_left else 4, -2),
        textcoords="offset points",
        va="top",
        ha="right" if on_left else "left",
        fontsize=9.5,
        color="#444444",
    )


def legend_on_top(figure: Figure, entries: Iterable[tuple[Any, str]]) -> None:
    """A legend above the axes, in as many columns as its names leave room for."""
    handles, names = zip(*entries, strict=True)
    names = [name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…" for name in names]
    columns = 3 if max(map(len, names)) <= 21 else 2 if max(map(len, names)) <= 32 else 1
    columns = 2 if len(names) == 4 else columns
    figure.legend(handles, names, loc="outside upper left", ncols=columns, handlelength=3.2, columnspacing=1.4)
