"""The table of a sweep for the terminal."""

from rich.text import Text

from everlong.records.sweep import Sweep
from everlong.reports._pieces import Column, Pieces, texts
from everlong.reports._words import method_name, plural


def sweep_table(sweep: Sweep) -> Pieces:
    """A row a cell, a column an arm: the mean with its interval; whole intervals above every floor stand in bold."""
    floors = [max(floors.values()) for floors in sweep.floors]
    names = _names(sweep, ("seeds that learn", "learning rate"))
    names.append(Column("floor", texts(["", "", *(f"{floor:.2g}" for floor in floors)]), right=True))
    title = f"{sweep.task}: {sweep.measures[0].replace('_', ' ')} over {plural(len(sweep.seeds), 'seed')}"
    columns = []
    for arm in sweep.arms:
        cells = [Text(_words(*arm.share)), Text(f"{sweep.learning_rates[arm.chosen]:g}")]
        for mean, lower, upper, floor in zip(arm.mean, arm.lower, arm.upper, floors, strict=True):
            cells.append(Text(_words(mean, lower, upper), "bold" if lower > floor else ""))
        columns.append(Column(method_name(arm.label), tuple(cells)))
    return Pieces(title, names, columns)


def other_table(sweep: Sweep, measure: str) -> Pieces:
    """The means of another measure, at the learning rates of the first, without intervals."""
    columns = [
        Column(method_name(arm.label), texts([f"{mean:.2f}" for mean in arm.scores[measure][arm.chosen].mean(axis=0)]))
        for arm in sweep.arms
    ]
    return Pieces(f"{sweep.task}: {measure.replace('_', ' ')}", _names(sweep), columns)


def _names(sweep: Sweep, above: tuple[str, ...] = ()) -> list[Column]:
    """The parameters of the cells; what stands above these has its name in the last of them."""
    parameters = list(sweep.cells[0])
    last = parameters[-1]
    columns = []
    for name in parameters:
        cells = ["" if cell[name] is None else str(cell[name]) for cell in sweep.cells]
        columns.append(Column(name, texts([*(words if name == last else "" for words in above), *cells]), right=True))
    return columns


def _words(mean: float, lower: float, upper: float) -> str:
    return f"{mean:.2f} [{lower:.2f},{upper:.2f}]"


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
