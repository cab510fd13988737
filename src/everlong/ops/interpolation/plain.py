"""The interpolations in plain torch, differentiable on any device."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from everlong.ops.token_shift import token_shift


def interpolation(
    x: Float[Tensor, "B T C"],
    weights: Sequence[Float[Tensor, " C"]],
    changes: Sequence[Float[Tensor, "B T C"]],
    initial_state: Float[Tensor, "B C"],
    *,
    resets: Bool[Tensor, "B T"] | None = None,
) -> tuple[tuple[Float[Tensor, "B T C"], ...], Float[Tensor, "B C"]]:
    """Equations (1) and (2).

    Args:
        x: inputs.
        weights: w, one an interpolation.
        changes: m, one an interpolation, or none at all for zero.
        initial_state: the last input before the first of ``x``.
        resets: True at a document's first token: the input before it counts as zero.

    Returns:
        y, one an interpolation, and the last input, in the dtype of ``initial_state``.
    """
    previous, final = token_shift(x, initial_state, resets=resets)
    difference = previous - x
    moved = [row + change for row, change in zip(weights, changes, strict=True)] if changes else weights
    return tuple(torch.addcmul(x, difference, weight) for weight in moved), final
