"""The sequential truth, one token at a time, in the equations of the package's docstring."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from everlong.ops._inputs import check_length


def gated_linear_attention(
    q: Float[Tensor, "B T G K"],
    k: Float[Tensor, "B T G K"],
    v: Float[Tensor, "B T H V"],
    log_decay: Float[Tensor, "B T H"] | Float[Tensor, "B T H K"],
    initial_state: Float[Tensor, "B H K V"],
    *,
    bonus: Float[Tensor, "H K"] | None = None,
    resets: Bool[Tensor, "B T"] | None = None,
) -> tuple[Float[Tensor, "B T H V"], Float[Tensor, "B H K V"]]:
    """Runs the recurrence in the state's dtype; head h reads the q and k of group h * G // H.

    Args:
        q: queries (Mamba-2: C; RWKV-6: r).
        k: keys (Mamba-2: B).
        v: values (Mamba-2: dt x).
        log_decay: never above 0; one a head, or one a head and key channel.
        initial_state: the state before the first token.
        bonus: RWKV-6's u; the read-out is then (2') instead of (2).
        resets: True at a document's first token: the state before it counts as zero.

    Returns:
        o, in the dtype of v, and the state after the last token, in the dtype of ``initial_state``.
    """
    check_length(v)
    length, heads = v.shape[1:3]
    wide = initial_state.dtype
    repeats = heads // q.shape[2]
    queries, keys = (x.to(wide).repeat_interleave(repeats, dim=2) for x in (q, k))
    decay = log_decay.to(wide).exp()
    decay = decay.unsqueeze(-1) if decay.ndim == 3 else decay  # [B, T, H, 1 or K]
    values, state, outputs = v.to(wide), initial_state, []
    gain = None if bonus is None else bonus.to(wide)[None, :, :, None]  # once: its gradient is summed in ``wide``
    for t in range(length):
        if resets is not None:
            state = torch.where(resets[:, t, None, None, None], torch.zeros_like(state), state)
        write = keys[:, t, :, :, None] * values[:, t, :, None, :]  # k_t v_t^T
        before, state = state, decay[:, t, :, :, None] * state + write  # (1)
        seen = state if gain is None else before + gain * write
        outputs.append(torch.einsum("bhk,bhkv->bhv", queries[:, t], seen))  # (2), (2')
    return torch.stack(outputs, dim=1).to(v.dtype), state
