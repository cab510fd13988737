"""The sequential truth, one token at a time, in the equations of the package's docstring."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from everlong.ops._inputs import check_length


def selective_scan(
    x: Float[Tensor, "B T C"],
    dt: Float[Tensor, "B T C"],
    A: Float[Tensor, "C N"],
    B: Float[Tensor, "B T N"],
    C: Float[Tensor, "B T N"],
    initial_state: Float[Tensor, "B C N"],
    *,
    resets: Bool[Tensor, "B T"] | None = None,
) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B C N"]]:
    """Runs the recurrence in the state's dtype.

    Args:
        x: inputs.
        dt: step sizes, at least 0.
        A: decay rates, at most 0.
        B: what writes into the states, shared by all channels.
        C: what reads them.
        initial_state: the state before the first token.
        resets: True at a document's first token: the state before it counts as zero.

    Returns:
        y, in the dtype of x, and the state after the last token, in the dtype of ``initial_state``.
    """
    check_length(x)
    wide = initial_state.dtype
    steps, rates, inputs, writes, reads = (m.to(wide) for m in (dt, A, x, B, C))
    state, outputs = initial_state, []
    for t in range(x.shape[1]):
        if resets is not None:
            state = torch.where(resets[:, t, None, None], torch.zeros_like(state), state)
        decay = (steps[:, t, :, None] * rates).exp()
        state = decay * state + (steps[:, t] * inputs[:, t])[:, :, None] * writes[:, t, None, :]  # (1)
        outputs.append(torch.einsum("bcn,bn->bc", state, reads[:, t]))  # (2)
    return torch.stack(outputs, dim=1).to(x.dtype), state
