"""Cross-entropy over vocabularies of any size: beside the logits, and their gradient, little memory is taken."""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

ELEMENTS = 1 << 20  # logits that are widened, or whose exponentials are held, at once: they stay in the caches


def token_losses(logits: Float[Tensor, "N S"], targets: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
    """The negative log-likelihood of each target, -log softmax(logits)[target], in nats.

    Unlike torch's cross_entropy, it makes no copy of the logits, neither in float32 nor as log-probabilities.

    Args:
        logits: of any floating dtype; computed in float32 or wider.
        targets: ids below S.

    Returns:
        The losses, float32 or wider.
    """
    losses: Any = _TokenLosses.apply(logits, targets)
    return losses


class _TokenLosses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        wide = torch.promote_types(logits.dtype, torch.float32)
        normalisers = logits.new_empty(len(logits), dtype=wide)
        losses = torch.empty_like(normalisers)
        for rows in _pieces(logits):
            piece = logits[rows].to(wide)
            normalisers[rows] = torch.logsumexp(piece, -1)
            losses[rows] = normalisers[rows] - piece.gather(-1, targets[rows].unsqueeze(-1)).squeeze(-1)
        ctx.save_for_backward(logits, targets, normalisers)
        return losses

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, None]:
        logits, targets, normalisers = ctx.saved_tensors
        d_logits = torch.empty_like(logits)
        for rows in _pieces(logits):
            piece = (logits[rows].to(normalisers.dtype) - normalisers[rows].unsqueeze(-1)).exp_()  # the probabilities
            piece.scatter_add_(-1, targets[rows].unsqueeze(-1), -torch.ones_like(piece[:, :1]))
            d_logits[rows] = piece.mul_(gradients[0][rows].unsqueeze(-1))
        return d_logits, None


def _pieces(logits: Tensor) -> Iterator[slice]:
    rows = max(1, ELEMENTS // logits.shape[1])
    return (slice(start, start + rows) for start in range(0, len(logits), rows))
