"""The loss of training."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F


def cross_entropy(
    logits: Float[Tensor, "B T S"], targets: Tensor, scored: Bool[Tensor, "B T"] | None
) -> Float[Tensor, ""]:
    """Sum over the scored targets, in nats, in float32 or wider.

    Args:
        logits: of each token's successor.
        targets: [B, T], the successors.
        scored: True where the loss counts; None: everywhere.
    """
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if scored is not None:
        targets = targets.masked_fill(~scored.to(targets.device), -100)
    return F.cross_entropy(wide.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
