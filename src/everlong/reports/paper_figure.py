"""The run beside the paper's own curves, both in units of their training lengths."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from everlong.reports._axes import legend_on_top, powers
from everlong.reports._chart import WIDTH, Chart
from everlong.reports._curves import entries, log_scale
from everlong.reports._paper import CONTEXT, SIZES, PaperCurve, paper_curves
from everlong.reports._results import Results, mean_losses
from everlong.reports._styles import PAPER, Style, styles_of

CAPTION = (
    "This run (coloured and black) beside the paper's Mamba-2 models (greys; base and, thinner, state passing, SP). "
    "The paper's curves are approximate: read off the authors' published figures by pixel tracking, perplexity to 1-2"
    " %; they published no tables. Their models were trained on {paper:,} tokens, so positions are in training "
    "lengths; perplexity and standard deviation (of their Fig. 4, which names no size) are over their values at the "
    "training length, since models, tokens and text differ. Only shapes can be compared. Effective remembrance: the "
    "paper's at T of four training lengths, the run's at the T nearest to that."
)
PANELS = {
    "perplexity": "perplexity over that at T",
    "effective_remembrance": "effective remembrance",
    "state_std": "std of the state over that at T",
}
LEAST_POSITION = 1 / 16


def paper_figure(results: Results) -> Chart | None:
    """The figure, or nothing where the run has none of these curves."""
    ours = {panel: curves for panel in PANELS if (curves := _ours(results, panel))}
    if not ours:
        return None
    paper = [curve for curve in paper_curves() if curve.figure in ours]
    styles, looks = styles_of(results.labels), dict(zip(SIZES, PAPER[:-1], strict=True))
    figure = Figure(figsize=(WIDTH, 1.1 + 2.9 * len(ours)), layout="constrained")
    rows: list[tuple] = []
    for axes, (panel, curves) in zip(figure.subplots(len(ours), squeeze=False)[:, 0], ours.items(), strict=True):
        for curve in (curve for curve in paper if curve.figure == panel):
            places, values = _scaled(curve)
            look = looks.get(curve.name.split()[0], PAPER[-1])
            thin = curve.name.endswith("SP")
            _draw(axes, places, values, look, f"paper, {curve.name}", width=0.8 if thin else 1.6, zorder=2.0)
            rows += [(panel, f"paper, {curve.name}", *point) for point in zip(places, values, strict=True)]
        for label, (places, values) in curves.items():
            _draw(axes, places, values, styles[label], results.name(label), width=2.1, zorder=3.0)
            rows += [(panel, label, *point) for point in zip(places, values, strict=True)]
        _finish(axes, panel)
    figure.axes[-1].set_xlabel("position in training lengths")
    legend_on_top(figure, sorted(entries(figure.axes), key=lambda entry: entry[1].startswith("paper")))
    return Chart(
        name="beside-the-paper",
        title="Beside the paper's curves (approximate)",
        caption=CAPTION.format(paper=CONTEXT),
        figure=figure,
        columns=("curve", "model", "position_in_training_lengths", "value"),
        rows=tuple((panel, name, float(place), float(value)) for panel, name, place, value in rows),
    )


def _ours(results: Results, panel: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Label -> places in training lengths, and values."""
    found = {}
    if panel == "perplexity":
        for label, diagnosis in results.diagnoses.items():
            for curve in (curve for curve in diagnosis.curves if curve.policy == "carry" and len(curve.losses)):
                middles = np.sqrt((np.array(curve.starts) + 1.0) * np.array(curve.stops)) / diagnosis.context
                found[label] = (middles, _over_that_at_one(middles, np.exp(mean_losses(curve.losses))))
    elif panel == "state_std":
        for label, record in results.measures["state_statistics"].items():
            places = np.array(record.positions) / record.basis.context
            found[label] = (places, _over_that_at_one(places, record.full["std"].mean))
    else:
        for label, record in results.measures["effective_remembrance"].items():
            at = min(record.ends, key=lambda at: abs(np.log((at.end + 1) / (4 * record.basis.context))))
            places = np.array(at.starts[1:]) / record.basis.context
            found[label] = (places, np.asarray(at.estimates["total_variation"].mean[1:], dtype=float))
    return found


def _scaled(curve: PaperCurve) -> tuple[np.ndarray, np.ndarray]:
    places = curve.t / CONTEXT
    return places, curve.values if curve.figure == "effective_remembrance" else _over_that_at_one(places, curve.values)


def _over_that_at_one(places: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values over the one at the training length, interpolated on log axes."""
    there = np.isfinite(values) & (values > 0) & (places > 0)
    return values / np.exp(np.interp(0.0, np.log(places[there]), np.log(values[there])))


def _draw(
    axes: Axes, places: np.ndarray, values: np.ndarray, style: Style, name: str, *, width: float, zorder: float
) -> None:
    there = np.isfinite(values) & (values > 0) & (places >= LEAST_POSITION)
    axes.plot(
        *(places[there], values[there]),
        color=style.colour,
        linestyle=style.dashes,
        linewidth=width,
        marker=style.marker,
        markersize=5,
        markevery=max(1, int(there.sum()) // 10),
        label=name,
        zorder=zorder,
    )


def _finish(axes: Axes, panel: str) -> None:
    axes.set_xscale("log", base=2)
    low, high = axes.get_xlim()
    axes.set_xlim(max(low, LEAST_POSITION), high)
    axes.xaxis.set_major_locator(FixedLocator(powers(LEAST_POSITION, high, 1)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value >= 1 else f"1/{1 / value:.0f}"))
    axes.axvline(1, color="#444444", linestyle=":", linewidth=1.4, zorder=1.5)
    log_scale(axes, PANELS[panel])
