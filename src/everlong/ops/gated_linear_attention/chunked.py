"""The chunked form in plain torch, differentiable on any device: in a chunk a masked product, between chunks the state.

With c_i the sum of the log-decays of a chunk up to and including token i, and S the state before the chunk:

    o_i = exp(c_i) q_i^T S + sum_{j <= i} exp(c_i - c_j) (q_i . k_j) v_j
    S'  = exp(c_L) S + sum_j exp(c_L - c_j) k_j v_j^T

Every exponent is a sum of log-decays, so none is positive and strong decays are stable: exponents are masked before
exp, and the sums run in float64 so that a strong decay does not blur a weak one that follows it in the chunk. With a
bonus the read-out sees the state before the token: c_{i-1} in place of c_i, j < i, and u for j = i. A reset cuts a
chunk into segments, and tokens see each other, or the states at the chunk's ends, only inside their own segment.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from everlong.ops._inputs import check_length, start_of

SCALAR_CHUNK = 64  # one [L, L] matrix of decays a head
VECTOR_CHUNK = 16  # one [L, L, K] tensor of decays a head: kept small


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
    """The same function as ``reference.gated_linear_attention``, in chunks."""
    check_length(v)
    length, groups, heads = q.shape[1], q.shape[2], v.shape[2]
    wide, share = initial_state.dtype, heads // groups
    per_channel = log_decay.ndim == 4
    chunk = min(VECTOR_CHUNK if per_channel else SCALAR_CHUNK, length)
    padding = -length % chunk  # padded tokens write nothing and decay nothing: the final state does not see them

    def split(x: Tensor, *inner: int) -> Tensor:  # [B, T, ...] -> [B, N, *inner axes..., L, last axis]
        x = pad(x, [0, 0] * (x.ndim - 2) + [0, padding])
        return x.unflatten(1, (-1, chunk)).unflatten(3, inner).movedim(2, 2 + len(inner))

    queries, keys = split(q.to(wide), groups, 1), split(k.to(wide), groups, 1)  # [B, N, G, 1, L, K]
    values = split(v.to(wide), groups, share)  # [B, N, G, R, L, V]; R heads share a group's q and k
    decay_axes = log_decay.double() if per_channel else log_decay.double().unsqueeze(-1)
    steps = split(decay_axes, groups, share)  # [B, N, G, R, L, K or 1]
    sums = steps.cumsum(-2)
    reads = sums if bonus is None else sums - steps  # the decay that the read-out at i has seen
    order = torch.arange(chunk, device=q.device)
    visible = order[:, None] >= order[None, :] if bonus is None else order[:, None] > order[None, :]
    segment = None
    if resets is not None:
        segment = pad(resets, [0, padding]).unflatten(1, (-1, chunk)).cumsum(-1)  # [B, N, L]
        segment = segment[:, :, None, None, :]
        visible = visible & (segment[..., :, None] == segment[..., None, :])

    if per_channel:
        exponents = (reads[..., :, None, :] - sums[..., None, :, :]).to(wide)  # [..., L, L, K]
        weights = exponents.masked_fill(~visible[..., None], -torch.inf).exp()
        scores = torch.einsum("...ik,...jk,...ijk->...ij", *torch.broadcast_tensors(queries, keys), weights)
    else:
        exponents = (reads - sums.transpose(-1, -2)).to(wide)  # [..., L, L]
        scores = (queries @ keys.transpose(-1, -2)) * exponents.masked_fill(~visible, -torch.inf).exp()
    if bonus is not None:
        gain = bonus.to(wide).unflatten(0, (groups, share))[..., None, :]  # [G, R, 1, K]
        scores = scores + torch.diag_embed((queries * gain * keys).sum(-1))
    outputs = scores @ values

    into = reads.exp().to(wide)  # from the state before the chunk to token i
    out_of = (sums[..., -1:, :] - sums).exp().to(wide)  # from token j to the chunk's end
    through = sums[..., -1:, :].exp().to(wide)
    if segment is not None:
        carried = (segment == 0).unsqueeze(-1)  # tokens that still see the state before the chunk
        kept = carried[..., -1:, :]  # the state before the chunk reaches its end
        written = (segment == segment[..., -1:]).unsqueeze(-1)  # tokens that reach the state after it
        into, out_of, through = into * carried, out_of * written, through * kept
    writes = (keys * out_of).transpose(-1, -2) @ values  # [B, N, G, R, K, V]
    through = through.transpose(-1, -2)  # [B, N, G, R, K or 1, 1]
    state = start_of(initial_state, resets).unflatten(1, (groups, share))
    before = []
    for n in range(writes.shape[1]):
        before.append(state)
        state = through[:, n] * state + writes[:, n]
    outputs = outputs + (queries * into) @ torch.stack(before, dim=1)
    outputs = outputs.movedim(4, 2).flatten(3, 4).flatten(1, 2)[:, :length]  # [B, T, H, V]
    return outputs.to(v.dtype), state.flatten(1, 2)
