"""Which part of the state does the harm: what is taken away when it alone is made fresh."""

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from everlong.records.measurements import Transplant
from everlong.reports._axes import legend_on_top
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._curves import INTERVAL, cells, entries
from everlong.reports._results import Results
from everlong.reports._styles import Style, styles_of
from everlong.reports.findings import head_name

MOST_LEAVES = 8
CAPTION = (
    "Nats that go from the loss of the next {targets} targets when one part of the carried state, after {position} "
    "tokens of a document, is replaced by that of a fresh window of the same document: an intervention, not a "
    "correlation. The parts of {base} that take most away come first ({shown} of {leaves} single leaves are drawn); "
    "single parts do not add up. Beside the name of a model stands the whole excess there. Bars are {confidence:.0%} "
    "intervals over documents, for all parts at once. The reverse exchange, other positions, and the single heads of "
    "the layer that takes most away stand in the data."
)


def transplant_figure(results: Results) -> Chart | None:
    """The figure, or nothing where nothing was exchanged."""
    records: dict[str, Transplant] = results.measures["transplant"]
    if not records:
        return None
    first, base = next(iter(records.items()))
    where = int(np.nanargmax(base.excess.mean))
    groups = [index for index, name in enumerate(base.parts) if "." not in name]
    parts = [*groups, *base.ranked[:MOST_LEAVES]]
    figure = Figure(figsize=(WIDTH, 1.3 + 0.36 * len(parts)), layout="constrained")
    axes, styles = figure.add_subplot(), styles_of(results.labels)
    alike = {k: v for k, v in records.items() if (v.parts, v.positions) == (base.parts, base.positions)}
    for index, (label, record) in enumerate(alike.items()):
        shift = 0.22 * (index - (len(alike) - 1) / 2) * min(1, 3 / len(alike))
        _draw(
            axes, record, where, parts, styles[label], f"{results.name(label)} (excess {_excess(record, where)})", shift
        )
    axes.set_yticks(range(len(parts)), [base.parts[part] for part in parts])
    axes.axhline(len(groups) - 0.5, color="#888888", linewidth=0.8, linestyle=":")
    axes.set_ylim(len(parts) - 0.4, -0.6)
    axes.axvline(0, color="#222222", linewidth=1)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.grid(visible=True, axis="x")
    axes.set_axisbelow(True)
    axes.set_xlabel("taken away by making the part fresh (nats a token)")
    legend_on_top(figure, entries(figure.axes))
    return Chart(
        name="transplant",
        title="Which part of the state does it",
        caption=CAPTION.format(
            targets=f"{base.targets:,}",
            position=f"{base.positions[where]:,}",
            base=results.name(first),
            shown=len(parts) - len(groups),
            leaves=len(base.ranked),
            confidence=base.basis.confidence,
        ),
        figure=figure,
        columns=("label", "part", "exchange", "tokens_read", *INTERVAL),
        rows=tuple(row for label, record in records.items() for row in _rows(label, record)),
    )


def _rows(label: str, record: Transplant) -> Iterator[tuple]:
    for exchange, values in (("carried made fresh", record.taken), ("fresh made carried", record.brought)):
        for at, position in enumerate(record.positions):
            for index, part in enumerate(record.parts):
                yield label, part, exchange, position, *cells(values, (at, index))
    for at, layer in enumerate(record.head_layers):
        for head in range(record.heads_taken.mean.shape[1]):
            found = cells(record.heads_taken, (at, head))
            yield label, head_name(layer, head), "carried made fresh", record.positions[at], *found


def _draw(axes: Axes, record: Transplant, where: int, parts: list[int], style: Style, name: str, shift: float) -> None:
    mean, lower, upper = (
        np.nan_to_num(values[where, parts]) for values in (record.taken.mean, record.taken.lower, record.taken.upper)
    )
    axes.errorbar(
        *(mean, np.arange(len(parts)) + shift),
        xerr=np.maximum(np.array([mean - lower, upper - mean]), 0),
        color=style.colour,
        linestyle="",
        marker=style.marker,
        markersize=6,
        label=name,
        elinewidth=1.6,
        capsize=3,
    )


def _excess(record: Transplant, where: int) -> str:
    return f"{record.excess.mean[where]:+.2f}"
