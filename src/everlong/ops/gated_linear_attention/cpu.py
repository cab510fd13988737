"""The CPU kernel: the recurrence itself, compiled by Numba, forward and backward; no state is kept for any token.

What is saved for the backward pass is the inputs. The kernels and their equations are in ``_cpu_kernels.py``. Results
do not depend on the number of threads: no sum crosses threads.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from everlong.ops._cpu import run_in_threads
from everlong.ops._inputs import check_length
from everlong.ops.gated_linear_attention import _cpu_kernels

UNITS = 16  # about as many parts share the backward pass, whatever the number of threads: each sums its heads alone


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
    """The same function as ``reference.gated_linear_attention``, in float32."""
    check_length(v)
    decays = log_decay if log_decay.ndim == 4 else log_decay.unsqueeze(-1)
    inputs = [x.float() for x in (q, k, v, decays, initial_state)]
    outputs, final_state = _Recurrence.apply(*inputs, None if bonus is None else bonus.float(), resets)
    return outputs.to(v.dtype), final_state.to(initial_state.dtype)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q, k, v, log_decay, initial_state, bonus, resets):
        q, k, v, log_decay, initial_state = (x.contiguous() for x in (q, k, v, log_decay, initial_state))
        bonus = q.new_empty(0, q.shape[3]) if bonus is None else bonus.contiguous()
        resets = torch.zeros(q.shape[:2], dtype=torch.bool) if resets is None else resets.contiguous()
        outputs, final_state = torch.empty_like(v), torch.empty_like(initial_state)
        inputs = (q, k, v, log_decay, initial_state, bonus, resets)
        _run(_cpu_kernels.forward, v.shape[0] * v.shape[2], inputs, outputs, final_state)
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)
        return outputs, final_state

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_outputs, d_final):
        inputs = ctx.saved_tensors  # once: where a block is computed again in the backward pass, each time costs that
        q, k, v, log_decay, initial_state, bonus, _ = inputs
        batch, length, groups, key_dim = q.shape
        heads = v.shape[2]
        copies = _copies(batch, groups, heads)
        d_outputs = torch.zeros_like(v) if d_outputs is None else d_outputs.contiguous()
        d_final = v.new_empty(batch, heads, 0, 0) if d_final is None else d_final.contiguous()
        dq, dk = q.new_empty(batch, length, copies, key_dim), k.new_empty(batch, length, copies, key_dim)
        dv, d_log_decay = torch.empty_like(v), torch.empty_like(log_decay)
        d_initial, d_bonus = torch.empty_like(initial_state), v.new_empty(batch, *bonus.shape)
        gradients = (dq, dk, dv, d_log_decay, d_initial, d_bonus)
        _run(_cpu_kernels.backward, batch * copies, inputs, d_outputs, d_final, *gradients)
        if copies != groups:
            dq, dk = (x.unflatten(2, (groups, -1)).sum(3) for x in (dq, dk))
        wants_initial, wants_bonus = ctx.needs_input_grad[4:6]
        return (
            *(dq, dk, dv, d_log_decay),
            d_initial if wants_initial else None,
            d_bonus.sum(0) if wants_bonus else None,
            None,
        )


def _copies(batch: int, groups: int, heads: int) -> int:
    """Into how many sums the heads' gradients of q and k go, before those of a group are added up."""
    each = heads // groups
    return groups * next(n for n in range(1, each + 1) if each % n == 0 and (n == each or batch * groups * n >= UNITS))


def _run(kernel: Any, units: int, inputs: tuple[Tensor, ...], *tensors: Tensor) -> None:
    """Runs a kernel over its units, heads of rows."""
    arrays = (tuple(x.detach().numpy() for x in inputs), *(x.numpy() for x in tensors))
    work = inputs[2].numel() * inputs[0].shape[3]  # B T H V K
    run_in_threads(lambda first, stop: kernel(*arrays, first, stop), units, work)
