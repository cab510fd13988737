"""The CPU kernel: the recurrence itself, compiled by Numba, forward and backward.

What is kept for the backward pass is the inputs and one state a segment of tokens. The kernels and their equations are
in ``_cpu_kernels.py``. Results do not depend on the number of threads: no sum crosses threads.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from everlong.ops._cpu import run_in_threads
from everlong.ops._inputs import check_length, start_of
from everlong.ops._vectors import TILE
from everlong.ops.selective_scan import _cpu_kernels

UNITS = 16  # about as many groups of channels share the backward pass, whatever the number of threads: each sums alone


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
    """The same function as ``reference.selective_scan``, in float32."""
    check_length(x)
    (channels, states), dtype = A.shape, x.dtype
    x, dt, A, B, C, state = (m.float() for m in (x, dt, A, B, C, start_of(initial_state, resets)))
    right, below = -channels % TILE, -states % TILE
    if right or below:  # zeros: a padded state stays zero, and nothing reads it
        x, dt, B, C = pad(x, [0, right]), pad(dt, [0, right]), pad(B, [0, below]), pad(C, [0, below])
        A, state = (pad(m, [0, below, 0, right]) for m in (A, state))
    outputs, final_state = _Scan.apply(x, dt, A.mT, B, C, state.mT, resets)
    final_state = final_state[:, :states, :channels].mT.contiguous()
    return outputs[..., :channels].to(dtype), final_state.to(initial_state.dtype)


class _Scan(torch.autograd.Function):
    """With A [N, C] and states [B, N, C], so that the channels of a vector lie side by side."""

    @staticmethod
    def forward(ctx: Any, x, dt, A, B, C, initial_state, resets):
        resets = torch.zeros(x.shape[:2], dtype=torch.bool) if resets is None else resets
        inputs = [m.contiguous() for m in (x, dt, A[None], B, C, resets.unsqueeze(-1))]
        batch, length, channels = x.shape
        outputs, state = torch.empty_like(inputs[0]), initial_state.clone(memory_format=torch.contiguous_format)
        needed = any(ctx.needs_input_grad)
        segments = -(-length // _cpu_kernels.SEGMENT) if needed else 0
        kept = x.new_empty(segments, *state.shape)
        _run(_cpu_kernels.forward, batch * channels // TILE, inputs, outputs, state, kept)
        ctx.save_for_backward(*inputs, kept)
        ctx.set_materialize_grads(False)
        return outputs, state

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_outputs, d_final):
        *inputs, kept = ctx.saved_tensors
        x, _, A, B, _, _ = inputs
        batch, length, channels = x.shape
        groups = min(channels // TILE, max(1, UNITS // batch))
        d_outputs = torch.zeros_like(x) if d_outputs is None else d_outputs.contiguous()
        carried = torch.zeros_like(kept[0]) if d_final is None else d_final.clone(memory_format=torch.contiguous_format)
        dx, d_dt, dA = torch.empty_like(x), torch.empty_like(x), x.new_zeros(batch, *A.shape[1:])
        dB, dC = (x.new_empty(batch, length, groups, B.shape[-1]) for _ in range(2))
        gradients = tuple(m.numpy() for m in (dx, d_dt, dA, dB, dC))
        _run(_cpu_kernels.backward, batch * groups, inputs, kept, d_outputs, carried, gradients)
        return dx, d_dt, dA.sum(0), dB.sum(2), dC.sum(2), carried, None


def _run(kernel: Any, units: int, inputs: list[Tensor], *others: Any) -> None:
    arrays = tuple(x.detach().numpy() for x in inputs)
    rest = [x.detach().numpy() if isinstance(x, Tensor) else x for x in others]
    work = 8 * inputs[0].numel() * inputs[2].shape[1]  # an exponential is several multiplications
    run_in_threads(lambda first, stop: kernel(arrays, *rest, first, stop), units, work)
