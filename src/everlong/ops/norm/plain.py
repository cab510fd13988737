"""The norms in plain torch, computed in float32 or wider."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

Order = Literal["first", "last"]


def norm(
    x: Float[Tensor, "*axes C"],
    weight: Float[Tensor, " C"],
    bias: Float[Tensor, " C"] | None,
    gate: Float[Tensor, "*axes C"] | None,
    *,
    epsilon: float,
    groups: int,
    centred: bool,
    gate_comes: Order,
) -> Float[Tensor, "*axes C"]:
    """Equations (1) to (3).

    Args:
        x: activations.
        weight: one a channel.
        bias: one a channel, or None.
        gate: what gates, or None.
        epsilon: added to the variance or the mean square.
        groups: equal parts of the last axis, each with its own mean and variance.
        centred: whether the mean is subtracted.
        gate_comes: "first" or "last"; no matter without a gate.

    Returns:
        y in the dtype of ``weight``.
    """
    wide = torch.promote_types(x.dtype, torch.float32)
    u = x.to(wide)
    opening = None if gate is None else F.silu(gate.to(wide))
    if opening is not None and gate_comes == "first":
        u = u * opening
    grouped = u.unflatten(-1, (groups, -1))
    if centred:
        normed = F.layer_norm(grouped, grouped.shape[-1:], eps=epsilon)
    else:
        normed = grouped * (grouped.square().mean(-1, keepdim=True) + epsilon).rsqrt()
    y = normed.flatten(-2).to(weight.dtype) * weight
    if bias is not None:
        y = y + bias
    return y * opening.to(weight.dtype) if opening is not None and gate_comes == "last" else y
