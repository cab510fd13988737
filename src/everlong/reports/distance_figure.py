"""How far the law of the state has gone from the law that training met, and the excess loss beside it."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from everlong.records.measurements import StateDistance
from everlong.reports._axes import legend_on_top, name_training_length, token_axis
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._curves import PLAIN, entries, log_scale, symlog_scale
from everlong.reports._results import Results
from everlong.reports._styles import Style, styles_of

CAPTION = (
    "First panel: energy distance of the law of the state at a position from its law at the end of the training "
    "length, on {projections} random projections, the null's mean taken off, in units of the drift from half the "
    "training length to its end; the median over the layers for which that drift is a unit, the band reaching from "
    "the nearest layer to the farthest; what is nearer than 0.01 is drawn there. Second panel: the same distance "
    "against the excess loss over the next {targets} targets, a point a position, joined in their order. Rank "
    "correlations over positions and layers: {correlations}. A correlation is no cause."
)
LEAST = 1e-2  # in-range drifts: what is nearer is drawn there, on a log axis


def distance_figure(results: Results) -> Chart | None:
    """The figure, or nothing where no distance could be measured in drifts."""
    records: dict[str, StateDistance] = results.measures["state_distance"]
    drawn = {label: record for label, record in records.items() if np.isfinite(record.state.in_drifts.mean).any()}
    if not drawn:
        return None
    basis = next(iter(drawn.values())).basis
    figure = Figure(figsize=(WIDTH, 6.2), layout="constrained")
    far, against = figure.subplots(2, 1)
    styles = styles_of(results.labels)
    farthest = max(record.positions[-1] for record in drawn.values())
    token_axis(far, 1.0, farthest * 1.1, basis.context, "tokens read")
    for label, record in drawn.items():
        _draw(far, against, record, styles[label], results.name(label))
    log_scale(far, "in-range drifts")
    far.axhline(1, color="#666666", linewidth=0.9)
    against.set_xscale("log")
    against.xaxis.set_major_formatter(PLAIN)
    against.xaxis.set_minor_formatter(NullFormatter())
    against.set_xlabel("distance of the state (in-range drifts)")
    symlog_scale(against, "excess (nats a token)")
    name_training_length(far, basis.context)
    legend_on_top(figure, entries([far]))
    return Chart(
        name="state-distance",
        title="Distance of the state, and the excess loss",
        caption=CAPTION.format(
            projections=next(iter(drawn.values())).projections,
            targets=f"{max(1, basis.context // 2):,}",
            correlations="; ".join(f"{results.name(label)} {_correlations(record)}" for label, record in drawn.items()),
        ),
        figure=figure,
        columns=(
            *("label", "of", "layer", "tokens_read", "energy", "null_mean", "null_upper", "p_value", "in_drifts"),
            *("excess", "excess_lower", "excess_upper"),
        ),
        rows=tuple(row for label, record in records.items() for row in _rows(label, record)),
    )


def _draw(far: Axes, against: Axes, record: StateDistance, style: Style, name: str) -> None:
    drifts = np.maximum(record.state.in_drifts.mean[np.isfinite(record.state.in_drifts.mean).any(axis=1)], LEAST)
    median, places = np.nanmedian(drifts, axis=0), np.array(record.positions, dtype=float)
    look = {"color": style.colour, "linestyle": style.dashes, "marker": style.marker, "markersize": 5, "label": name}
    lowest, highest = np.nanmin(drifts, axis=0), np.nanmax(drifts, axis=0)
    far.fill_between(places, lowest, highest, color=style.colour, alpha=0.13, linewidth=0)
    far.plot(places, median, linewidth=2.0, **look)
    at = [record.positions.index(position) for position in record.excess_positions]
    if at:
        against.plot(median[at], record.excess.mean, linewidth=1.3, **look)


def _correlations(record: StateDistance) -> str:
    found = {name.replace("_", "-"): value for name, value in record.rank_correlation_all.items()}
    return ", ".join(f"{name} {value:+.2f}" if np.isfinite(value) else f"{name} n/a" for name, value in found.items())


def _rows(label: str, record: StateDistance) -> list[tuple]:
    rows = []
    excess = {position: index for index, position in enumerate(record.excess_positions)}
    for name, distances in (("state", record.state), ("read_out", record.read_out)):
        for i, layer in enumerate(record.layers):
            for j, position in enumerate(record.positions):
                columns = (distances.energy, distances.null_mean, distances.null_upper, distances.p_value)
                nats = ("", "", "")
                if position in excess:
                    parts = (record.excess.mean, record.excess.lower, record.excess.upper)
                    nats = tuple(float(part[excess[position]]) for part in parts)
                values = (*(float(column[i, j]) for column in columns), float(distances.in_drifts.mean[i, j]))
                rows.append((label, name, layer, position, *values, *nats))
    return rows
