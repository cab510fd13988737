"""The loss of training."""

from jaxtyping import Bool, Float
from torch import Tensor

from everlong.ops.cross_entropy import token_losses


def cross_entropy(
    logits: Float[Tensor, "B T S"], targets: Tensor, scored: Bool[Tensor, "B T"] | None
) -> Float[Tensor, ""]:
    """Sum over the scored targets, in nats, in float32 or wider.

    Args:
        logits: of each token's successor.
        targets: [B, T], the successors.
        scored: True where the loss counts; None: everywhere.
    """
    losses = token_losses(logits.flatten(0, 1), targets.flatten())
    return losses.sum() if scored is None else losses[scored.flatten().to(losses.device)].sum()
