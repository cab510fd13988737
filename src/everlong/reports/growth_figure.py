"""The growth of the state that is predicted from within the training length, and the break that it lets one expect."""

from matplotlib.figure import Figure

from everlong.crossing import Crossing, crossing
from everlong.records.measurements import DecayHorizons
from everlong.reports._axes import legend_on_top, name_training_length, token_axis
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._curves import entries, log_scale, name_height
from everlong.reports._results import Results
from everlong.reports._styles import styles_of

CAPTION = (
    "The second moment of the state of the layer that grows most, over that at the training length, extrapolated from "
    "decays and states within the training length alone; where it is {bound:g}, a break is predicted ({predicted}). "
    "Thin vertical lines: where the mean excess loss really passes the tolerance of {tolerance:g} nats ({measured}; "
    "percentile bootstrap over documents); from where on harm is sure says the verdict. All layers stand in the data."
)


def growth_figure(results: Results) -> Chart | None:
    """The figure, or nothing where decays were not followed."""
    records: dict[str, DecayHorizons] = results.measures["decay_horizons"]
    if not records:
        return None
    first = next(iter(records.values()))
    context, length = first.basis.context, max(record.basis.length for record in records.values())
    figure = Figure(figsize=(WIDTH, 3.5), layout="constrained")
    axes, styles = figure.add_subplot(), styles_of(results.labels)
    token_axis(axes, float(context), length * 1.1, context, "tokens read")
    passes = {label: crossing(results.diagnoses[label]) for label in records if label in results.diagnoses}
    for label, record in records.items():
        style, grown = styles[label], record.growth.max(axis=0)
        axes.plot(
            *(record.growth_positions, grown),
            color=style.colour,
            linestyle=style.dashes,
            marker=style.marker,
            markersize=5,
            markevery=max(1, len(grown) // 10),
            linewidth=1.8,
            label=results.name(label),
        )
        measured = passes[label].position if label in passes else None
        if measured:
            name = f"{results.name(label)}: measured"
            axes.axvline(measured, color=style.colour, linestyle=style.dashes, linewidth=0.9, label=name)
    axes.axhline(first.growth_bound, color="#666666", linewidth=0.9)
    log_scale(axes, "second moment over that at T")
    name_height(axes, first.growth_bound, "predicted break")
    name_training_length(axes, context)
    legend_on_top(figure, entries([axes]))
    return Chart(
        name="predicted-break",
        title="The predicted break",
        caption=CAPTION.format(
            bound=first.growth_bound,
            tolerance=first.basis.tolerance,
            predicted=_said(results, {label: _tokens(r.predicted_break) for label, r in records.items()}),
            measured=_said(results, {label: str(found) for label, found in passes.items()}),
        ),
        figure=figure,
        columns=("label", "layer", "tokens_read", "growth", "predicted_break", "measured", "lower", "upper"),
        rows=tuple(
            (label, layer, position, float(grown), record.predicted_break or "", *_cells(passes.get(label)))
            for label, record in records.items()
            for layer, of_layer in zip(sorted(set(record.layers)), record.growth, strict=True)
            for position, grown in zip(record.growth_positions, of_layer, strict=True)
        ),
    )


def _cells(found: Crossing | None) -> tuple[float | str, ...]:
    return tuple(value or "" for value in (found.position, found.lower, found.upper)) if found else ("", "", "")


def _tokens(position: int | None) -> str:
    return f"{position:,}" if position else "none"


def _said(results: Results, found: dict[str, str]) -> str:
    return "; ".join(f"{results.name(label)}: {words}" for label, words in found.items())
