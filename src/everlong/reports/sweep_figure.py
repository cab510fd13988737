"""Figures of a sweep: every seed at every learning rate, and each arm by cell, as the paper's Figs. 6 and 7."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from everlong.records.sweep import Sweep
from everlong.reports._axes import legend_on_top
from everlong.reports._chart import WIDTH, Chart, drawing, write_chart
from everlong.reports._styles import styles_of
from everlong.reports._words import method_name, plural

DOWN = {"passkey": "depth", "recall": "facts"}
"""Task -> what is swept down in its heat map; the others are lines over the length."""


def write_sweep_figures(sweep: Sweep, folder: Path) -> None:
    """Writes SVG, PDF and CSV of each figure."""
    with drawing():
        for chart in (_seeds(sweep), _maps(sweep) if sweep.task in DOWN else _lines(sweep)):
            write_chart(chart, folder)


def _seeds(sweep: Sweep) -> Chart:
    """What the lottery gave: a point a seed and learning rate."""
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    axes, styles = figure.add_subplot(), styles_of(arm.label for arm in sweep.arms)
    handles, rows = [], []
    for place, arm in enumerate(sweep.arms):
        within = arm.scores[sweep.measures[0]][:, :, list(sweep.in_range)].mean(axis=2)
        style = styles[arm.label]
        for rate, learning_rate in enumerate(sweep.learning_rates):
            spread = np.linspace(-0.04, 0.04, len(sweep.seeds)) if len(sweep.seeds) > 1 else np.zeros(1)
            across = rate + (place - (len(sweep.arms) - 1) / 2) * 0.7 / len(sweep.arms) + spread
            kwargs: dict[str, Any] = {"color": style.colour, "marker": style.marker or "o", "linestyle": "none"}
            (handle,) = axes.plot(across, within[rate], markersize=5, alpha=0.8, **kwargs)
            chosen = arm.chosen == rate
            learned = int(arm.learned[rate].sum())
            axes.annotate(
                f"{learned}/{len(sweep.seeds)}", (float(across.mean()), 1.02), ha="center", va="bottom", fontsize=8,
                color=style.colour, weight="bold" if chosen else "normal", annotation_clip=False,
            )  # fmt: skip
            rows += [
                (arm.label, learning_rate, seed, float(within[rate, i]), bool(arm.learned[rate, i]), chosen)
                for i, seed in enumerate(sweep.seeds)
            ]
        handles.append((handle, method_name(arm.label)))
    axes.set_xticks(range(len(sweep.learning_rates)), [f"{rate:g}" for rate in sweep.learning_rates])
    axes.set_ylim(-0.03, 1.12)
    axes.set_xlabel("peak learning rate")
    axes.set_ylabel(f"{sweep.measures[0].replace('_', ' ')}, in range")
    axes.grid(visible=True, axis="y")
    legend_on_top(figure, handles)
    return Chart(
        name="seeds",
        title="Every seed at every learning rate",
        caption=f"A point a seed: within the training length. Above, how many of {plural(len(sweep.seeds), 'seed')} "
        f"learn: {sweep.learns}. Bold: the rate at which the arm is judged.",
        figure=figure,
        columns=("arm", "learning_rate", "seed", "in_range", "learned", "judged_here"),
        rows=tuple(rows),
    )


def _lines(sweep: Sweep) -> Chart:
    """A panel for what else is swept, a line an arm, over the length."""
    panels: dict[str, list[int]] = {}
    for place, cell in enumerate(sweep.cells):
        others = [str(value) for name, value in cell.items() if name != "length"]
        panels.setdefault(", ".join(others) or sweep.task, []).append(place)
    figure = Figure(figsize=(WIDTH, 0.5 + 2.8 * len(panels)), layout="constrained")
    drawn = figure.subplots(len(panels), squeeze=False)[:, 0]
    styles, handles = styles_of(arm.label for arm in sweep.arms), {}
    for axes, (name, places) in zip(drawn, panels.items(), strict=True):
        lengths = [max(sweep.cells[place]["length"], 1) for place in places]  # a log axis has no zero
        for arm in sweep.arms:
            style = styles[arm.label]
            (handles[method_name(arm.label)],) = axes.plot(
                *(lengths, arm.mean[places]),
                color=style.colour, linestyle=style.dashes, linewidth=2.0, marker=style.marker, markersize=5.5,
            )  # fmt: skip
            axes.fill_between(
                lengths, arm.lower[places], arm.upper[places], color=style.colour, alpha=0.15, linewidth=0
            )
        axes.plot(lengths, [max(sweep.floors[place].values()) for place in places], color="#444444", linestyle=":")
        _finish(axes, sweep, name, lengths)
    legend_on_top(figure, [(handle, name) for name, handle in handles.items()])
    return _chart(sweep, figure, "Dotted, the best floor: what a guess or a constant answer scores.")


def _finish(axes: Axes, sweep: Sweep, name: str, lengths: list[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sorted(set(lengths)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_ylim(-0.03, 1.03)
    axes.grid(visible=True, axis="y")
    last = max(sweep.cells[place]["length"] for place in sweep.in_range)
    axes.axvline(last, color="#D55E00", linewidth=1.5, linestyle="--")
    axes.set_xlabel(f"length ({sweep.length_is})")
    axes.set_ylabel(f"{name}: {sweep.measures[0].replace('_', ' ')}")


def _maps(sweep: Sweep) -> Chart:
    """A heat map an arm."""
    down = DOWN[sweep.task]
    across = list(dict.fromkeys(_column(cell) for cell in sweep.cells))
    rows = sorted({cell[down] for cell in sweep.cells})
    height = 0.5 + 0.34 * len(rows)
    figure = Figure(figsize=(WIDTH, 0.9 + height * len(sweep.arms)), layout="constrained")
    panels = figure.subplots(len(sweep.arms), squeeze=False, sharex=True)[:, 0]
    for axes, arm in zip(panels, sweep.arms, strict=True):
        means = np.full((len(rows), len(across)), np.nan)
        for place, cell in enumerate(sweep.cells):
            means[rows.index(cell[down]), across.index(_column(cell))] = arm.mean[place]
        axes.imshow(means, cmap="cividis", vmin=0, vmax=1, aspect="auto")
        for row, column in np.argwhere(np.isfinite(means)):
            value = means[row, column]
            ink = "black" if value > 0.55 else "white"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=ink, fontsize=9)
        axes.set_yticks(range(len(rows)), [f"{value:g}" for value in rows])
        axes.set_ylabel(down)
        axes.set_title(method_name(arm.label))
        within = {_column(sweep.cells[place]) for place in sweep.in_range}
        axes.axvline(max(map(across.index, within)) + 0.5, color="#D55E00", linewidth=2)
    panels[-1].set_xticks(range(len(across)), across, rotation=30)
    panels[-1].set_xlabel("length in tokens")
    return _chart(sweep, figure, "Right of the line, beyond the training length.")


def _column(cell: dict[str, Any]) -> str:
    """What stands under a column: the length, and how far back, where that is swept, too."""
    distance = cell.get("distance")
    return f"{cell['length']:,}" + ("" if distance is None else f", {distance:,} back")


def _chart(sweep: Sweep, figure: Figure, words: str) -> Chart:
    return Chart(
        name="scores",
        title=f"{sweep.task}, after training in several ways",
        caption=f"{sweep.measures[0].replace('_', ' ')} of each arm at its own learning rate, over "
        f"{plural(len(sweep.seeds), 'seed')}, with intervals of {sweep.confidence:.0%} ({sweep.interval}). {words}",
        figure=figure,
        columns=("arm", "learning_rate", "seed", "cell", "measure", "score"),
        rows=tuple(_rows(sweep)),
    )


def _rows(sweep: Sweep) -> Iterator[tuple]:
    for arm in sweep.arms:
        for measure, scores in arm.scores.items():
            for (rate, seed, place), score in np.ndenumerate(scores):
                cell = " ".join(f"{name}={value}" for name, value in sweep.cells[place].items())
                yield (arm.label, sweep.learning_rates[rate], sweep.seeds[seed], cell, measure, float(score))
