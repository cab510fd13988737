"""How training reads its rows, whoever's loop it is: resets, a prefix without loss (or gradient), and the loss."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from everlong.data.batch import Batch
from everlong.interventions._protocol import Intervention
from everlong.ops.cross_entropy import token_losses
from everlong.state import RecurrentState


@dataclass(frozen=True, eq=False)
class Reading:
    """What came of reading a batch: logits, their targets, where they count (None: everywhere), the final state.

    Where a prefix was read without a gradient, it is left out of all three.
    """

    logits: Float[Tensor, "B T S"]
    targets: Int[Tensor, "B T"]
    scored: Bool[Tensor, "B T"] | None
    state: RecurrentState


def as_read(batch: Batch, intervention: Intervention, step: int) -> Batch:
    """The batch as an intervention has it read: where rows start from zero anew, and where the loss counts.

    The rows' places are on the CPU, wherever the tokens are.
    """
    resets, mask = intervention.resets(step, batch.rows, batch.tokens.shape[1]), batch.loss_mask
    if resets is not None:
        resets = resets.to(batch.tokens.device)
        resets = resets if batch.resets is None else batch.resets | resets
    if intervention.unscored_prefix:
        mask = torch.ones_like(batch.tokens, dtype=torch.bool) if mask is None else mask.clone()
        mask[:, : intervention.unscored_prefix] = False
    return replace(batch, resets=batch.resets if resets is None else resets, loss_mask=mask)


def read(model: Callable[..., Any], batch: Batch, initial: RecurrentState, intervention: Intervention) -> Reading:
    """Reads a batch from its initial states; by split invariance, in one piece or in two is the same.

    Args:
        model: keeps the one contract.
        batch: as ``as_read`` gives it, on the model's device.
        initial: the state that each row starts from.
        intervention: says what is read without loss, and whether without a gradient.
    """
    prefix, scored = intervention.unscored_prefix, batch.loss_mask
    if not prefix or intervention.prefix_gradient:
        output = model(batch.tokens, initial, resets=batch.resets)
        return Reading(output.logits, batch.targets, scored, output.state)
    before, after = (None, None) if batch.resets is None else (batch.resets[:, :prefix], batch.resets[:, prefix:])
    with torch.no_grad():
        state = model(batch.tokens[:, :prefix], initial, resets=before).state
    output = model(batch.tokens[:, prefix:], state, resets=after)
    assert scored is not None  # the prefix is not
    return Reading(output.logits, batch.targets[:, prefix:], scored[:, prefix:], output.state)


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
