"""The token shift of RWKV: every token beside the one before it, with the last input as state."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from everlong.ops._inputs import check_length


def token_shift(
    x: Float[Tensor, "B T C"],
    initial_state: Float[Tensor, "B C"],
    *,
    resets: Bool[Tensor, "B T"] | None = None,
) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B C"]]:
    """y_t = x_{t-1}, where the input before the first comes from the state.

    Args:
        x: inputs.
        initial_state: the last input before the first of ``x``.
        resets: True at a document's first token: the input before it counts as zero.

    Returns:
        y, and the last input, in the dtype of ``initial_state``.
    """
    check_length(x)
    previous = torch.cat([initial_state.to(x.dtype).unsqueeze(1), x[:, :-1]], dim=1)
    if resets is not None:
        previous = previous.masked_fill(resets.unsqueeze(-1), 0)
    return previous, x[:, -1].to(initial_state.dtype, copy=True)  # a view would keep every input alive
