"""The CPU kernel, compiled by Numba, forward and backward; what is kept for the backward pass is the inputs.

Results do not depend on the number of threads: no sum crosses threads.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from everlong.ops._cpu import rows_of, run_in_threads
from everlong.ops._inputs import check_length
from everlong.ops.short_convolution import _cpu_kernels


def short_convolution(
    x: Float[Tensor, "B T C"],
    weight: Float[Tensor, "C 1 D"],
    bias: Float[Tensor, " C"] | None,
    initial_state: Float[Tensor, "B W C"],
    *,
    resets: Bool[Tensor, "B T"] | None = None,
) -> tuple[Float[Tensor, "B T C"], Float[Tensor, "B W C"]]:
    """The same function as ``plain.short_convolution``, in float32."""
    check_length(x)
    wide_bias = None if bias is None else bias.float()
    y, final = _Convolution.apply(x.float(), weight.float(), wide_bias, initial_state.float(), resets)
    return y.to(x.dtype), final.to(initial_state.dtype)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, weight, bias, initial_state, resets):
        ctx.has_bias = bias is not None
        taps = weight[:, 0].t().contiguous()  # [D, C]: channels are the lanes
        bias = taps.new_zeros(taps.shape[1]) if bias is None else bias.contiguous()
        resets = torch.zeros(x.shape[0], 0, dtype=torch.bool) if resets is None else resets.contiguous()
        x = x if x.stride(-1) == 1 else x.contiguous()
        state = initial_state.contiguous()
        y, final = x.new_empty(x.shape), torch.empty_like(state)
        _run(_cpu_kernels.forward, x, taps, bias, state, resets, y, final)
        ctx.save_for_backward(x, taps, bias, state, resets)
        ctx.set_materialize_grads(False)
        return y, final

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy, d_final):
        x, taps, bias, state, resets = ctx.saved_tensors
        dy = x.new_zeros(x.shape) if dy is None else dy.contiguous()
        d_final = state.new_empty(state.shape[0], 0, state.shape[2]) if d_final is None else d_final.contiguous()
        dx, d_state = x.new_empty(x.shape), torch.zeros_like(state)
        d_taps, d_bias = taps.new_zeros(len(x), *taps.shape), taps.new_zeros(len(x), *bias.shape)
        _run(_cpu_kernels.backward, x, taps, bias, state, resets, dy, d_final, dx, d_taps, d_bias, d_state)
        d_weight = d_taps.sum(0).t().unsqueeze(1).contiguous()
        return dx, d_weight, d_bias.sum(0) if ctx.has_bias else None, d_state, None


def _run(kernel: Any, x: Tensor, taps: Tensor, *tensors: Tensor) -> None:
    flat, place = rows_of(x)
    arrays = [m.detach().numpy() for m in (taps, *tensors)]
    units = x.shape[0] * -(-x.shape[2] // _cpu_kernels.BLOCK)
    work = 4 * x.numel() * len(taps)
    run_in_threads(lambda first, stop: kernel(flat, place, *arrays, first, stop), units, work)
