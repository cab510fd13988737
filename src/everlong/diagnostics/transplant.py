"""Which part of the state does the harm: an intervention, not a correlation.

At a position the carried state and the state of a fresh window of T tokens of the SAME document are at hand. A part
of the carried state is replaced by the fresh one's and the next T/2 targets are read: how much of the excess loss goes;
and in reverse, how much comes with the part. All leaves together are the window policy and take away all of it. Single
parts do not add up.
"""

from collections.abc import Callable

import numpy as np
from torch import Tensor

from everlong.diagnostics._continuation import long_and_fresh, losses_after, parted
from everlong.diagnostics._estimates import estimate, jackknife
from everlong.diagnostics._examination import Examination, Work
from everlong.diagnostics.config import MeasuresConfig
from everlong.errors import EverlongError
from everlong.reading import sweep
from everlong.records.measurements import Estimate, Transplant
from everlong.state import RecurrentState, StateSpec

MOST_HEADS = 64  # of a layer; where there are more (Mamba-1's channels) no single one is exchanged


def transplant(examination: Examination, config: MeasuresConfig) -> Transplant:
    """Exchanges every leaf, all of a role, all, and the heads of the worst layer; see the module."""
    model, rows, context = examination.model, examination.full_rows, examination.context
    targets = max(1, context // 2)
    positions = transplant_positions(context, examination.length - targets, config.transplant_positions)
    parts = state_parts(model.state_spec)
    recurrent = [i for i, leaf in enumerate(model.state_spec.leaves) if leaf.role == "recurrent"]
    heads = max(model.state_spec.leaves[i].shape[0] for i in recurrent)
    heads = heads if heads <= MOST_HEADS else 0
    reads = long_and_fresh(len(rows), positions[-1], positions, context)
    whole, found = [], []
    runs = 2 + 2 * len(parts) + heads
    total = (positions[-1] + len(positions) * (context + runs * targets)) * len(rows)
    with examination.work("transplant", total) as work:
        for moment in sweep(model, rows, reads, positions, advance=work.advance):
            _, carried, fresh = parted(moment, reads, len(rows))
            assert fresh is not None

            def after(state: RecurrentState, position: int = moment.position) -> np.ndarray:
                work.advance(targets * len(rows))
                return losses_after(model, rows, position, state, targets)

            base = after(carried)
            mended, spoiled = (
                [after(mix(a, b, p)) for p in parts.values()] for a, b in ((carried, fresh), (fresh, carried))
            )
            worst = min(recurrent, key=lambda leaf: mended[list(parts.values()).index({leaf})].mean())
            by_head = [after(mix(carried, fresh, {worst}, head)) for head in range(heads)]
            whole.append((base, after(fresh), model.state_spec.leaves[worst].layer))
            found.append(
                [
                    np.stack(losses, axis=1) if losses else np.zeros((len(rows), 0))
                    for losses in (mended, spoiled, by_head)
                ]
            )
    return _record(examination, work, positions, targets, parts, whole, found)


def transplant_positions(context: int, last: int, count: int) -> tuple[int, ...]:
    """Spaced logarithmically from twice the training length to the last that leaves room for the targets."""
    if last <= context:
        raise EverlongError(
            f"--max-length leaves no position beyond {context} tokens to exchange states at: make it longer"
        )
    return tuple(sorted(set(np.geomspace(min(2 * context, last), last, count).round().astype(int).tolist())))


def state_parts(spec: StateSpec) -> dict[str, set[int]]:
    """Name -> indices of the leaves that are exchanged together."""
    roles = {
        role: {i for i, leaf in enumerate(spec.leaves) if (leaf.role == "recurrent") == role} for role in (True, False)
    }
    parts = {"all": set(range(len(spec.leaves))), "all recurrent": roles[True], "all other": roles[False]}
    return {name: part for name, part in parts.items() if part} | {leaf.path: {i} for i, leaf in enumerate(spec.leaves)}


def mix(state: RecurrentState, donor: RecurrentState, part: set[int], head: int | None = None) -> RecurrentState:
    """The state with some leaves, or one head of them, of the donor."""

    def one(mine: Tensor, theirs: Tensor) -> Tensor:
        if head is None:
            return theirs
        mixed = mine.clone()
        mixed[:, head] = theirs[:, head]
        return mixed

    pairs = zip(state.leaves, donor.leaves, strict=True)
    return RecurrentState(state.spec, tuple(one(a, b) if i in part else a for i, (a, b) in enumerate(pairs)))


def _record(
    examination: Examination,
    work: Work,
    positions: tuple[int, ...],
    targets: int,
    parts: dict[str, set[int]],
    whole: list[tuple[np.ndarray, np.ndarray, int]],
    found: list[list[np.ndarray]],
) -> Transplant:
    confidence, seed = examination.confidence, examination.seed
    carried, fresh = (np.stack([at[i] for at in whole], axis=1) for i in (0, 1))
    mended, spoiled, by_head = (np.stack([at[i] for at in found], axis=1) for i in (0, 1, 2))
    taken, brought = carried[..., None] - mended, spoiled - fresh[..., None]

    def sure(values: np.ndarray) -> Estimate:
        return estimate(values, confidence=confidence, seed=seed)

    share_taken, share_brought = (share_of(values, carried - fresh, sure) for values in (taken, brought))
    single = [index for index, part in enumerate(parts.values()) if len(part) == 1 and "." in list(parts)[index]]
    return Transplant(
        basis=examination.basis(work, full_only=True),
        positions=positions,
        targets=targets,
        parts=tuple(parts),
        carried=carried,
        fresh=fresh,
        mended=mended,
        spoiled=spoiled,
        excess=sure(carried - fresh),
        taken=sure(taken),
        brought=sure(brought),
        share_taken=share_taken,
        share_brought=share_brought,
        ranked=tuple(sorted(single, key=lambda index: -taken[..., index].mean())),
        head_layers=tuple(at[2] for at in whole) if by_head.size else (),
        heads_mended=by_head,
        heads_taken=sure(carried[..., None] - by_head),
    )


def share_of(values: np.ndarray, excess: np.ndarray, sure: Callable[[np.ndarray], Estimate]) -> Estimate:
    """Sum of values [documents, positions, parts] over the sum of the excess [documents, positions], by jackknife."""

    def share(kept: np.ndarray) -> np.ndarray:
        total = excess[kept].sum()
        return values[kept].sum((0, 1)) / (total if total else np.nan)

    return sure(jackknife(share, len(excess)))
