"""Plain torch, differentiable on any device; what is kept for the backward pass is the inputs and a state a block.

Both passes go block by block, BLOCK tokens at a time, and hold the states of one block only. The backward pass computes
a block's states again from the state before it, and carries the gradient dh of the state back through the tokens:

    dh_t = C_t dy_t + D_{t+1},    D_t = exp(dt_t A) dh_t                                (3)

D_t h_{t-1} is then the gradient of dt_t A. (1) and (3) are the same recurrence, s_t = a_t s_{t-1} + w_t, the one read
forwards and the other backwards: ``_recur``. No exponent is positive. A reset is a decay of zero.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from everlong.ops._inputs import check_length, start_of

BLOCK = 64  # tokens whose states are held at once
CHUNK = 8  # tokens one after the other; the chunks of a block go side by side


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
    """The same function as ``reference.selective_scan``, in blocks."""
    check_length(x)
    wide = [m.to(initial_state.dtype) for m in (x, dt, A, B, C)]
    outputs, final_state = _Scan.apply(*wide, start_of(initial_state, resets), resets)
    return outputs.to(x.dtype), final_state


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, dt, A, B, C, initial_state, resets):
        outputs, before = torch.empty_like(x), [initial_state]
        for block in _blocks(x.shape[1]):
            decays = _decays(dt[:, block], A, resets, block)
            states = _recur(decays, _writes(x[:, block], dt[:, block], B[:, block]), before[-1])
            outputs[:, block] = (states @ C[:, block].unsqueeze(-1)).squeeze(-1)
            before.append(states[:, -1].clone())  # a view would keep the whole block
        ctx.save_for_backward(x, dt, A, B, C, resets, torch.stack(before[:-1]))
        ctx.set_materialize_grads(False)
        return outputs, before[-1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_outputs, d_final):
        x, dt, A, B, C, resets, before = ctx.saved_tensors
        d_outputs = torch.zeros_like(x) if d_outputs is None else d_outputs
        carried = torch.zeros_like(before[0]) if d_final is None else d_final  # D of the token after the block
        dx, d_dt, dB, dC = (torch.empty_like(m) for m in (x, dt, B, C))
        dA = torch.zeros_like(A)
        for number, block in reversed(list(enumerate(_blocks(x.shape[1])))):
            inputs, steps, write, dy = x[:, block], dt[:, block], B[:, block], d_outputs[:, block]
            decays = _decays(steps, A, resets, block)
            states = _recur(decays.clone(), _writes(inputs, steps, write), before[number])
            dC[:, block] = (dy.unsqueeze(-2) @ states).squeeze(-2)
            d_states = dy.unsqueeze(-1) * C[:, block].unsqueeze(-2)
            through = _recur(decays.flip(1), (decays * d_states).flip(1), carried).flip(1)  # D_t of (3)
            d_states[:, :-1] += through[:, 1:]
            d_states[:, -1] += carried
            carried = through[:, 0].clone()
            d_logs = through  # of dt_t A, once the state before the token has been multiplied in
            d_logs[:, 0] *= before[number]
            d_logs[:, 1:] *= states[:, :-1]
            written = (d_states @ write.unsqueeze(-1)).squeeze(-1)
            dx[:, block] = steps * written
            d_dt[:, block] = inputs * written + (d_logs * A).sum(-1)
            dA += torch.einsum("btcn,btc->cn", d_logs, steps)
            dB[:, block] = ((steps * inputs).unsqueeze(-2) @ d_states).squeeze(-2)
        return dx, d_dt, dA, dB, dC, carried, None


def _blocks(length: int) -> Iterator[slice]:
    return (slice(start, min(start + BLOCK, length)) for start in range(0, length, BLOCK))


def _decays(dt: Tensor, A: Tensor, resets: Tensor | None, block: slice) -> Tensor:
    decays = (dt.unsqueeze(-1) * A).exp_()
    return decays if resets is None else decays.masked_fill_(resets[:, block, None, None], 0)


def _writes(x: Tensor, dt: Tensor, B: Tensor) -> Tensor:
    return (dt * x).unsqueeze(-1) * B.unsqueeze(-2)


def _recur(a: Tensor, w: Tensor, before: Tensor) -> Tensor:
    """The states s_t = a_t s_{t-1} + w_t of a block, [B, T, C, N], from the one before it; a and w are written over.

    The chunks of the block first run from zero, all at once and token by token, which needs few calls on any device;
    then each gets what the state before it has become: the product of the chunk's decays up to the token, times it.
    """
    length = a.shape[1]
    chunk = min(CHUNK, length)
    padding = [0, 0, 0, 0, 0, -length % chunk]  # what stands beyond the last token is not looked at
    reach, states = (pad(m, padding).unflatten(1, (-1, chunk)) for m in (a, w))
    for i in range(1, chunk):
        states[:, :, i].addcmul_(reach[:, :, i], states[:, :, i - 1])
        reach[:, :, i].mul_(reach[:, :, i - 1])
    carried = [before]
    for m in range(states.shape[1] - 1):
        carried.append(torch.addcmul(states[:, m, -1], reach[:, m, -1], carried[-1]))
    states.addcmul_(reach, torch.stack(carried, dim=1).unsqueeze(2))
    return states.flatten(1, 2)[:, :length]
