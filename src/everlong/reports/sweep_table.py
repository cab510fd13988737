"""The table of a sweep for the terminal."""

from typing import Any

from rich.table import Table
from rich.text import Text

from everlong.records.sweep import Sweep
from everlong.reports._words import method_name, plural


def sweep_table(sweep: Sweep) -> Table:
    """A row a cell, a column an arm: the mean with its interval; whole intervals above every floor stand in bold."""
    seeds = plural(len(sweep.seeds), "seed")
    table = _table(sweep, f"{sweep.task}: {sweep.measures[0].replace('_', ' ')} over {seeds}")
    table.add_column("floor", justify="right")
    blank = [""] * (len(sweep.cells[0]) - 1)
    learned = [f"{arm.share[0]:.2f} [{arm.share[1]:.2f}, {arm.share[2]:.2f}]" for arm in sweep.arms]
    table.add_row(*blank, "seeds that learn", *learned, "")
    table.add_row(*blank, "learning rate", *(f"{sweep.learning_rates[arm.chosen]:g}" for arm in sweep.arms), "")
    for place, cell in enumerate(sweep.cells):
        floor = max(sweep.floors[place].values())
        scores = []
        for arm in sweep.arms:
            mean, lower, upper = (float(values[place]) for values in (arm.mean, arm.lower, arm.upper))
            scores.append(Text(f"{mean:.2f} [{lower:.2f}, {upper:.2f}]", style="bold" if lower > floor else ""))
        table.add_row(*_names(cell), *scores, f"{floor:.2g}")
    return table


def other_table(sweep: Sweep, measure: str) -> Table:
    """The means of another measure, at the learning rates of the first, without intervals."""
    table = _table(sweep, f"{sweep.task}: {measure.replace('_', ' ')}")
    for place, cell in enumerate(sweep.cells):
        means = [f"{arm.scores[measure][arm.chosen, :, place].mean():.2f}" for arm in sweep.arms]
        table.add_row(*_names(cell), *means)
    return table


def _table(sweep: Sweep, title: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.title, table.title_style, table.title_justify = Text(title), "bold", "left"
    for name in sweep.cells[0]:
        table.add_column(name, justify="right", no_wrap=True)
    for arm in sweep.arms:
        table.add_column(method_name(arm.label), no_wrap=True)
    return table


def _names(cell: dict[str, Any]) -> list[str]:
    return ["" if value is None else str(value) for value in cell.values()]


def sweep_lines(sweep: Sweep) -> tuple[str, ...]:
    """The sentence, the pairs of arms cell by cell, and how it was measured."""
    lines = [sweep.sentence]
    for pair in sweep.contrasts:
        cells = "; ".join(
            f"{' '.join(str(value) for value in cell.values())}: {pair.mean[i]:+.3f} "
            f"[{pair.lower[i]:+.3f}, {pair.upper[i]:+.3f}]"
            for i, cell in enumerate(sweep.cells)
        )
        lines.append(
            f"{method_name(pair.first)} minus {method_name(pair.second)}, {pair.over} ({pair.seeds}): {cells}."
        )
    rates = ", ".join(f"{rate:g}" for rate in sweep.learning_rates)
    lines += [
        f"Learned: {sweep.learns}. Each arm at its own learning rate of {rates}: the one with the most seeds that "
        f"learn. {sweep.examples:,} examples a cell; intervals {sweep.confidence:.0%}, {sweep.interval}, a cell at a "
        "time. Only a score above its floor says anything.",
        f"State: {sweep.state}; {sweep.parameters:,} parameters ({sweep.architecture}).",
    ]
    for cell, notes in zip(sweep.cells, sweep.notes, strict=True):
        lines += [f"{', '.join(f'{name} {value}' for name, value in cell.items())}: {note}." for note in notes]
    return tuple(lines)
