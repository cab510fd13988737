"""States whose parts come from different rows: the ladder between state passing and noise.

Rows are in exchange within a batch: a part (a layer, head, channel or element) of row r's state is that of row
r + k modulo B, with a k for each part, drawn for each step. So what each part holds over the batch stays the same to
the last value, whole parts stay whole, and where two parts come from is independent: as after a random permutation of
the rows for each part, at the price of one number a part.

    level       a recurrent leaf [B, H, K, V]   [B, C, N] (Mamba-1)    windows [B, W, C] and shifts [B, C]
    layers      with all leaves of its layer    the same               with all leaves of their layer
    heads       each head [K, V]                each channel [N]       each leaf as one
    channels    each value channel [K]          each channel [N]       each channel
    elements    each element                    each element           each element
"""

import math

from jaxtyping import Int
from torch import Tensor

from everlong.interventions._draws import turns
from everlong.interventions.config import Permuted
from everlong.state import LeafSpec, RecurrentState


def permuted(state: RecurrentState, rows: Int[Tensor, " B"], level: Permuted, seed: int, step: int) -> RecurrentState:
    """The states of ``rows``, each part from a row of its own.

    Args:
        state: of all rows of the batch, in their order.
        rows: those that are wanted, on the CPU.
        level: what a part is.
        seed: of the draws, 0 or more.
        step: counted from 0.
    """
    leaves = []
    for index, (leaf, tensor) in enumerate(state.items()):
        parts = _parts(leaf, level)
        place = leaf.layer if level == "layers" else index
        turn = turns(seed, step, place, math.prod(parts), state.batch_size).view(1, *parts)
        source = (rows.view(-1, *[1] * len(parts)) + turn) % state.batch_size
        leaves.append(tensor.gather(0, source.to(tensor.device).expand(len(rows), *leaf.shape)))
    return RecurrentState(state.spec, tuple(leaves))


def _parts(leaf: LeafSpec, level: Permuted) -> tuple[int, ...]:
    """The shape of a leaf with 1 for each axis along which a part runs."""
    shape, recurrent = leaf.shape, leaf.role == "recurrent"
    if level == "elements":
        return shape
    if level == "channels":
        if recurrent and len(shape) == 3:
            return (shape[0], 1, shape[2])
        return (shape[0], 1) if recurrent else (*[1] * (len(shape) - 1), shape[-1])
    if level == "heads" and recurrent:
        return (shape[0], *[1] * (len(shape) - 1))
    return (1,) * len(shape)
