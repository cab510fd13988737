"""The convolution in plain torch, differentiable on any device."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from everlong.ops._inputs import check_length


def short_convolution(
    x: Float[Tensor, "B T C"],
    weight: Float[Tensor, "C 1 D"],
    bias: Float[Tensor, " C"] | None,
    initial_state: Float[Tensor, "B W C"],
    *,
    resets: Bool[Tensor, "B T"] | None = None,
) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B W C"]]:
    """Equations (1) and (2), where W = D - 1 inputs before the first come from the state.

    Written as D shifted products: on a CPU torch's depthwise convolution is slow, its backward pass most of all.

    Args:
        x: inputs.
        weight: filters in torch's Conv1d layout; the last tap meets the current input.
        bias: one a channel, or None.
        initial_state: the last W inputs, oldest first.
        resets: True at a document's first token: inputs before it count as zero.

    Returns:
        y, and the last W inputs (zero where a reset has cut them off), in the dtype of ``initial_state``.
    """
    check_length(x)
    length, window = x.shape[1], initial_state.shape[1]
    inputs = torch.cat([initial_state.to(x.dtype), x], dim=1)  # [B, W + T, C]
    taps = weight[:, 0, :].unbind(-1)
    shifted = [inputs[:, d : d + length] for d in range(window + 1)]
    final = inputs[:, length:].clone()  # a view would keep every input alive as long as the state
    if resets is not None:
        count = resets.cumsum(1)
        segment = torch.cat([count.new_zeros(count.shape[0], window), count], dim=1)  # [B, W + T]
        hidden = [(segment[:, d : d + length] != count).unsqueeze(-1) for d in range(window + 1)]
        shifted = [part.masked_fill(other, 0) for part, other in zip(shifted, hidden, strict=True)]
        final = final.masked_fill((segment[:, length:] != count[:, -1:]).unsqueeze(-1), 0)
    y = shifted[0] * taps[0] if bias is None else torch.addcmul(bias, shifted[0], taps[0])
    for part, tap in zip(shifted[1:], taps[1:], strict=True):
        y = torch.addcmul(y, part, tap)
    return F.silu(y), final.to(initial_state.dtype)
