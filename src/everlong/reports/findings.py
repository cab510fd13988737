"""What each measure says of a model, in a sentence or two: the same words in the terminal and on the page."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from everlong.crossing import crossing
from everlong.records.diagnosis import Diagnosis
from everlong.records.measurements import (
    DecayHorizons,
    MeanDrift,
    Remembrance,
    StateDistance,
    StateStatistics,
    Transplant,
    UsedMemory,
)
from everlong.reports._words import plural, positions, signed


def findings(label: str, diagnosis: Diagnosis, measures: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line a measure that was made of this model, in the order of ``measures``."""
    lines = []
    for name, of_models in measures.items():
        if label in of_models:
            lines += [f"{TITLES[name]}: {sentence}" for sentence in SAYS[name](of_models[label], diagnosis)]
    return lines


def _remembrance(record: Remembrance, _: Diagnosis) -> Iterator[str]:
    for at in record.ends:
        far = int(np.searchsorted(at.starts, (at.end + 1) // 2))
        far = min(far, len(at.starts) - 1)
        distance, sign = at.estimates["total_variation"], at.estimates["signed"]
        start = at.starts[far]
        helps = "they help" if sign.lower[far] > 0 else "they harm" if sign.upper[far] < 0 else "not surely either way"
        yield (
            f"at T = {at.end:,}, leaving out the first {start:,} tokens moves the prediction by "
            f"{distance.mean[far]:.3f} [{distance.lower[far]:.3f}, {distance.upper[far]:.3f}] in total variation; they "
            f"are worth {signed(float(sign.mean[far]))} [{signed(float(sign.lower[far]))}, "
            f"{signed(float(sign.upper[far]))}] nats on the true next token ({helps})."
        )


def _statistics(record: StateStatistics, _: Diagnosis) -> Iterator[str]:
    context, std, share = record.basis.context, record.full["std"], record.mean_share
    at, last = record.positions.index(context), len(record.positions) - 1
    worst = record.worst[0]
    yield (
        f"the full state's standard deviation is {std.mean[at]:.3f} at {context:,} tokens and {std.mean[last]:.3f} at "
        f"{record.positions[last]:,}; what all documents share holds {share.mean[at]:.0%} of its second moment there "
        f"and then {share.mean[last]:.0%}. The head that leaves its law farthest is "
        f"{head_name(record.layers[worst], record.heads[worst])}, by a factor of "
        f"{np.exp(record.departure.mean[worst]):.2g}."
    )


def _distance(record: StateDistance, _: Diagnosis) -> Iterator[str]:
    last, at = record.state.in_drifts.mean[:, -1], record.positions[-1]
    there = last[np.isfinite(last)]
    if not len(there):
        yield "the state hardly drifts within the training range, so there is no unit to measure its distance in."
        return
    words = " and ".join(
        f"{'state' if name == 'state' else 'read-out'} {value:+.2f}"
        for name, value in record.rank_correlation_all.items()
        if np.isfinite(value)
    )
    yield (
        f"at {at:,} tokens the law of the state is {np.median(there):.1f} in-range drifts from that at the training "
        f"length (median of {plural(len(there), 'layer')})"
        + (f"; rank correlation with the excess loss, {words}." if words else ".")
    )


def _transplant(record: Transplant, _: Diagnosis) -> Iterator[str]:
    where = int(np.nanargmax(record.excess.mean))
    excess, taken = record.excess.mean[where], record.taken
    if record.excess.lower[where] <= record.basis.tolerance:
        yield (
            f"the carried state costs no more than {signed(float(excess))} nats over the next {record.targets:,} "
            "targets, not surely above the tolerance: there is nothing to trace to a part of the state."
        )
        return
    parts = [record.parts.index("all recurrent"), *record.ranked[:3]]
    named = "; ".join(
        f"{record.parts[part]} {signed(float(taken.mean[where, part]))} "
        f"[{signed(float(taken.lower[where, part]))}, {signed(float(taken.upper[where, part]))}]"
        for part in parts
    )
    yield (
        f"at {record.positions[where]:,} tokens the excess is {signed(float(excess))} nats; made fresh alone, these "
        f"parts of the state take away: {named}. Single parts do not add up.{_worst_head(record, where)}"
    )


def _worst_head(record: Transplant, where: int) -> str:
    if not record.head_layers:
        return ""
    taken, layer = record.heads_taken, record.head_layers[where]
    head = int(np.nanargmax(taken.mean[where]))
    low, high = (signed(float(ends[where, head])) for ends in (taken.lower, taken.upper))
    return (
        f" Of the heads of layer {layer} alone, {head_name(layer, head)} takes most away: "
        f"{signed(float(taken.mean[where, head]))} [{low}, {high}]."
    )


def _drift(record: MeanDrift, _: Diagnosis) -> Iterator[str]:
    last, carried = len(record.starts) - 1, record.carried
    words = (
        f"at {positions(record.starts[last], record.stops[last])} tokens, taking the drift of the mean state away "
        f"every {record.basis.context:,} tokens leaves {signed(float(record.recentred.mean[last]))} nats of an excess "
        f"of {signed(float(carried.mean[last]))}"
    )
    surely = carried.lower[last] > record.basis.tolerance
    yield f"{words}: {record.share_taken.mean[last]:.0%} is gone." if surely else f"{words}."


def _decays(record: DecayHorizons, diagnosis: Diagnosis) -> Iterator[str]:
    predicted, verdict, passes = record.predicted_break, diagnosis.verdict, crossing(diagnosis)
    measured = "nowhere" if passes.position is None else f"at {passes} tokens"
    yield (
        f"in {len(record.outliving)} of {plural(len(record.layers), 'head')} a write outlives the training length of "
        f"{record.basis.context:,} tokens before it has fallen to 1/e. Predicted from within the training length, the "
        f"state has {record.growth_bound:g} times its second moment "
        + (f"at {predicted:,} tokens" if predicted else f"nowhere up to {record.basis.length:,} tokens")
        + f"; the mean excess passes {verdict.tolerance:g} nats {measured} (verdict: {verdict.short})."
    )


def _memory(record: UsedMemory, _: Diagnosis) -> Iterator[str]:
    yield record.sentence


def head_name(layer: int, head: int) -> str:
    """L2H5: the third layer's sixth head, both counted from 0, as the paper does."""
    return f"L{layer}H{head}"


TITLES = {
    "decay_horizons": "Decays",
    "effective_remembrance": "Effective remembrance",
    "mean_drift": "Recentring",
    "state_distance": "Distance of the state",
    "state_statistics": "Law of the state",
    "transplant": "Transplant",
    "used_memory": "Used memory",
}
SAYS = {
    "decay_horizons": _decays,
    "effective_remembrance": _remembrance,
    "mean_drift": _drift,
    "state_distance": _distance,
    "state_statistics": _statistics,
    "transplant": _transplant,
    "used_memory": _memory,
}
