"""How far the law of the state at a position is from its law within the training range, beyond two moments.

D_t is compared with D_{T-1} by the energy distance (Szekely & Rizzo 2013) on fixed random projections, for the state
and for what is read out of it. Its null: were the two laws one, the labels of position could be exchanged within each
document, and documents are the units. Its measure: the same distance from D_{T/2} to D_{T-1}, the drift that training
has met.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy import stats
from torch import Tensor

from everlong.diagnostics._continuation import long_and_fresh, losses_after, parted
from everlong.diagnostics._estimates import estimate, jackknife
from everlong.diagnostics._examination import Examination, log_positions
from everlong.diagnostics._recurrences import matrices, watching
from everlong.diagnostics.config import MeasuresConfig
from everlong.errors import EverlongError
from everlong.policies._plan import Read
from everlong.reading import Moment, sweep
from everlong.records.measurements import Distances, StateDistance

STATE, READ_OUT = 0, 1


def state_distance(examination: Examination, config: MeasuresConfig) -> StateDistance:
    """Projects the states of the documents that are as long as the length; see the module."""
    model, rows, context = examination.model, examination.full_rows, examination.context
    length, documents, targets = examination.length, len(rows), max(1, context // 2)
    positions = log_positions(context, length, config.positions_per_octave)
    beyond = [position for position in positions if context < position <= length - targets]
    if not beyond:
        raise EverlongError(
            f"--max-length {length} leaves no position beyond {context} tokens to compare: make it longer"
        )
    reads = long_and_fresh(documents, length, beyond, context)
    outputs: dict[int, Tensor] = {}

    def see(layer: int, inputs: dict[str, Any], output: tuple[Tensor, Tensor]) -> None:
        outputs[layer] = output[0][:, -1].detach()

    projected: dict[int, list[list[np.ndarray]]] = {STATE: [], READ_OUT: []}
    losses = {}
    total = (length + len(beyond) * (context + 2 * targets)) * documents
    with examination.work("state distance", total) as work:
        for moment in _moments(examination, reads, positions, see, work.advance):
            own, long, fresh = parted(moment, reads, documents)
            read_out = [outputs[layer][own].flatten(1) for layer, _ in matrices(long)]
            state = [leaf.flatten(1) for _, leaf in matrices(long)]
            for kind, leaves in ((STATE, state), (READ_OUT, read_out)):
                projected[kind].append(
                    [_project(leaf, [examination.seed, kind, i], config.projections) for i, leaf in enumerate(leaves)]
                )
            if fresh is not None and moment.position in beyond:
                losses[moment.position] = [
                    losses_after(model, rows, moment.position, start, targets) for start in (long, fresh)
                ]
                work.advance(2 * targets * documents)
    excess = np.stack([losses[position][0] - losses[position][1] for position in beyond], axis=1)
    laws = [_laws(projected[kind], positions, examination, config) for kind in (STATE, READ_OUT)]
    columns = [positions.index(position) for position in beyond]
    by_layer, overall = _correlations(laws, columns, excess.mean(axis=0))
    return StateDistance(
        basis=examination.basis(work, full_only=True),
        positions=positions,
        layers=tuple(layer for layer, _ in matrices(model.zero_state(1))),
        state=laws[STATE],
        read_out=laws[READ_OUT],
        projections=config.projections,
        permutations=config.permutations,
        excess=estimate(excess, confidence=examination.confidence, seed=examination.seed),
        excess_positions=tuple(beyond),
        rank_correlation=by_layer,
        rank_correlation_all=overall,
    )


def energy(distance: Float[np.ndarray, "N N"], signs: np.ndarray) -> np.ndarray:
    """Energy distances of labelings, from distances between pooled points.

    Args:
        distance: between all points.
        signs: [labelings, N], +1 where a point is of the first law, -1 where it is of the second; as many of each.
    """
    half = distance.shape[0] // 2
    return -np.einsum("ra,ab,rb->r", signs, distance, signs, optimize=True) / half**2


def _moments(
    examination: Examination,
    reads: list[tuple[int, Read]],
    positions: tuple[int, ...],
    see: Callable[[int, dict[str, Any], tuple[Tensor, Tensor]], None],
    advance: Callable[[int], None],
) -> Iterator[Moment]:
    with watching(examination.model, see):
        yield from sweep(examination.model, examination.full_rows, reads, positions, advance=advance)


def _project(leaf: Float[Tensor, "D N"], seed: list[int], directions: int) -> np.ndarray:
    """[documents, directions]; made anew each time, since those of a large model would fill the memory."""
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence(seed).generate_state(1)[0]))
    matrix = torch.randn(leaf.shape[1], directions, generator=generator).to(leaf.device) / leaf.shape[1] ** 0.5
    return (leaf.float() @ matrix).double().cpu().numpy()


def _laws(
    projected: list[list[np.ndarray]], positions: tuple[int, ...], examination: Examination, config: MeasuresConfig
) -> Distances:
    """Compares each position's projections with those at the end of the training range, layer by layer."""
    layers, documents = len(projected[0]), len(projected[0][0])
    reference, middle = positions.index(examination.context), positions.index(examination.context // 2 + 1)
    signs = np.random.default_rng([examination.seed, 2]).choice([-1.0, 1.0], (config.permutations, documents))
    signs = np.concatenate([np.ones((1, documents)), signs])
    shape = (layers, len(positions))
    found, null_mean, null_upper, p_value = (np.zeros(shape) for _ in range(4))
    pseudo = np.zeros((documents, *shape))
    for layer in range(layers):
        for at in range(len(positions)):
            pooled = np.concatenate([projected[reference][layer], projected[at][layer]])
            distance = np.abs(pooled[:, None] - pooled[None]).mean(-1)
            every = energy(distance, np.concatenate([signs, -signs], axis=1))
            found[layer, at], null = every[0], every[1:]
            null_mean[layer, at], null_upper[layer, at] = null.mean(), np.quantile(null, examination.confidence)
            p_value[layer, at] = (1 + (null >= every[0] * (1 - 1e-9)).sum()) / (1 + len(null))
            pseudo[:, layer, at] = _pseudo_values(distance, documents)
    drift = found[:, middle] - null_mean[:, middle]
    drift = np.where(found[:, middle] > null_upper[:, middle], drift, np.nan)  # a drift within its null is no unit
    return Distances(
        energy=found,
        null_mean=null_mean,
        null_upper=null_upper,
        p_value=p_value,
        drift=drift,
        in_drifts=estimate(
            (pseudo - pseudo.mean(0) + found - null_mean) / drift[:, None],
            confidence=examination.confidence,
            seed=examination.seed,
        ),
    )


def _pseudo_values(distance: np.ndarray, documents: int) -> np.ndarray:
    def of(kept: np.ndarray) -> np.ndarray:
        both = np.concatenate([kept, kept + documents])
        labels = np.repeat([1.0, -1.0], len(kept))[None]
        return energy(distance[np.ix_(both, both)], labels)

    return jackknife(of, documents)[:, 0]


def _correlations(laws: list[Distances], columns: list[int], excess: np.ndarray) -> tuple[dict, dict]:
    """Spearman's rank correlation of distance with excess, by layer and over all; none below three positions."""
    by_layer, overall = {}, {}
    for name, law in zip(("state", "read_out"), laws, strict=True):
        far = law.in_drifts.mean[:, columns]
        above = (law.energy - law.null_mean)[:, columns]  # within a layer the unit does not matter, and may be none
        by_layer[name] = np.array([_spearman(layer, excess) for layer in above])
        overall[name] = _spearman(far.ravel(), np.tile(excess, len(far)))
    return by_layer, overall


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    there = np.isfinite(x) & np.isfinite(y)
    if there.sum() < 3 or np.ptp(x[there]) == 0 or np.ptp(y[there]) == 0:
        return float("nan")
    return float(np.corrcoef(stats.rankdata(x[there]), stats.rankdata(y[there]))[0, 1])
