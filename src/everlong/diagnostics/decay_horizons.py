"""For how long a write is remembered, and where that lets one expect the break.

The growth of a layer's state beyond the training range is extrapolated from what is seen within it: with a unit's mean
log-decay g a token, the mean matrix of constant writes grows as 1 - exp(g t) and the spread of independent ones as
1 - exp(2 g t). Where some layer's second moment reaches ``break_growth`` times that at T, the model meets states that
training has not shown: the predicted break. It is a hypothesis, to be set against measured breaks over several models.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from everlong.diagnostics._decays import THRESHOLDS, Decays
from everlong.diagnostics._estimates import estimate_each
from everlong.diagnostics._examination import Examination
from everlong.diagnostics._recurrences import matrices, watching
from everlong.diagnostics.config import MeasuresConfig
from everlong.policies._plan import Read
from everlong.reading import sweep
from everlong.records.measurements import DecayHorizons
from everlong.state import RecurrentState

GROWTH_POSITIONS = 16  # an octave


def decay_horizons(examination: Examination, config: MeasuresConfig) -> DecayHorizons:
    """Follows the decays of the documents that are as long as the length; see the module."""
    model, rows, context, length = examination.model, examination.full_rows, examination.context, examination.length
    writes = write_positions(context, length, config.writes)
    layers = sorted({layer for layer, _ in matrices(model.zero_state(1))})
    decays = {layer: Decays(context, writes) for layer in layers}
    reads = [(document, Read(0, length, length)) for document in range(len(rows))]
    in_range: list[np.ndarray] = []
    with (
        examination.work("decay horizons", length * len(rows)) as work,
        watching(model, lambda layer, inputs, _: decays[layer].see(inputs)),
    ):
        for moment in sweep(model, rows, reads, (context, length), advance=work.advance):
            if moment.position == context:
                in_range = _moments_by_unit(moment.state)
    horizons = [decays[layer].horizons.cpu().numpy() for layer in layers]  # thresholds, B, H, K, writes
    sums = [[part.cpu().numpy() for part in (decays[layer].in_context, decays[layer].whole)] for layer in layers]
    slowest = np.concatenate([np.median(h, axis=(1, 4)).max(-1) for h in horizons], axis=1)
    at, growth = _growth([of_context.mean(0) / context for of_context, _ in sums], in_range, context, length)
    beyond = np.flatnonzero((growth >= config.break_growth).any(axis=0))
    columns = [(layer, head) for layer, h in zip(layers, horizons, strict=True) for head in range(h.shape[2])]
    return DecayHorizons(
        basis=examination.basis(work, full_only=True),
        layers=tuple(layer for layer, _ in columns),
        heads=tuple(head for _, head in columns),
        thresholds=tuple(THRESHOLDS),
        written_at=writes,
        median=np.concatenate([np.median(h, axis=(1, 3, 4)) for h in horizons], axis=1),
        slowest=slowest,
        log_decay_context=estimate_each(_mean_over_units(sums, 0), confidence=examination.confidence),
        log_decay_length=estimate_each(_mean_over_units(sums, 1), confidence=examination.confidence),
        slowest_log_decay_context=np.concatenate([of_context.mean(0).max(-1) for of_context, _ in sums]),
        outliving=tuple(map(int, np.flatnonzero(slowest[0] > context))),
        growth_positions=tuple(map(int, at)),
        growth=growth,
        predicted_break=int(at[beyond[0]]) if len(beyond) else None,
        growth_bound=config.break_growth,
    )


def write_positions(context: int, length: int, count: int) -> tuple[int, ...]:
    """Where writes are followed from, spaced logarithmically from T/2 to a quarter of the length."""
    first = max(1, context // 2)
    return tuple(sorted(set(np.geomspace(first, max(first, length // 4), count).round().astype(int).tolist())))


def _mean_over_units(sums: list[list[np.ndarray]], which: int) -> np.ndarray:
    """[documents, heads]."""
    return np.concatenate([pair[which].mean(-1) for pair in sums], axis=1)


def _moments_by_unit(state: RecurrentState) -> list[np.ndarray]:
    """For each layer [2, H, K]: mean squares of the mean matrix's and the spread's rows, the mean's noise taken off."""
    return [_rows(leaf.double()).cpu().numpy() for _, leaf in matrices(state)]


def _rows(leaf: Float[Tensor, "B H K V"]) -> Float[Tensor, "2 H K"]:
    documents = leaf.shape[0]
    spread = leaf.var(0, correction=1).sum(-1)
    mean = (leaf.mean(0).square().sum(-1) - spread / documents).clamp(min=0)
    return torch.stack([mean, spread])


def _growth(
    log_decays: list[np.ndarray], in_range: list[np.ndarray], context: int, length: int
) -> tuple[np.ndarray, np.ndarray]:
    """Positions beyond T and [layers, positions]: the extrapolated second moment over that at T."""
    at = np.unique(np.geomspace(context, length, int(GROWTH_POSITIONS * np.log2(length / context)) + 2).round())
    layers = []
    for log_decay, (mean, spread) in zip(log_decays, in_range, strict=True):
        rate = np.minimum(log_decay, -1e-12)[..., None]  # [H, 1 or K, 1]
        of_mean = (np.expm1(rate * at) / np.expm1(rate * context)) ** 2
        of_spread = np.expm1(2 * rate * at) / np.expm1(2 * rate * context)
        grown = (mean[..., None] * of_mean + spread[..., None] * of_spread).sum((0, 1))
        total = (mean + spread).sum()
        layers.append(grown / total if total else np.ones(len(at)))
    return at, np.stack(layers)
