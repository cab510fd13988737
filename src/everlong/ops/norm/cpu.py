"""The CPU kernel, compiled by Numba, forward and backward; what is kept for the backward pass is the inputs.

Results do not depend on the number of threads: sums over tokens are of pieces of fixed size.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from everlong.ops._cpu import rows_of, run_in_threads
from everlong.ops.norm import _cpu_kernels
from everlong.ops.norm.plain import Order

ORDERS = {"first": _cpu_kernels.FIRST, "last": _cpu_kernels.LAST}


def norm(
    x: Float[Tensor, "*axes C"],
    weight: Float[Tensor, " C"],
    bias: Float[Tensor, " C"] | None,
    gate: Float[Tensor, "*axes C"] | None,
    *,
    epsilon: float,
    groups: int,
    centred: bool,
    gate_comes: Order,
) -> Float[Tensor, "*axes C"]:
    """The same function as ``plain.norm``, in float32."""
    order = _cpu_kernels.NONE if gate is None else ORDERS[gate_comes]
    options = (float(epsilon), groups, centred, order)
    if x.ndim != 3:
        flat = x.reshape(1, -1, x.shape[-1])
        flat_gate = None if gate is None else gate.reshape(1, -1, x.shape[-1])
        y = norm(flat, weight, bias, flat_gate, epsilon=epsilon, groups=groups, centred=centred, gate_comes=gate_comes)
        return y.view(x.shape)
    inputs = (None if m is None else m.float() for m in (x, weight, bias, gate))
    y: Any = _Norm.apply(*inputs, options)
    return y.to(weight.dtype)


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x, weight, bias, gate, options):
        ctx.options, ctx.has_bias = options, bias is not None
        x = x if x.stride(-1) == 1 else x.contiguous()
        gate = gate if gate is None or gate.stride(-1) == 1 else gate.contiguous()
        bias = torch.zeros_like(weight) if bias is None else bias
        y = x.new_empty(x.shape)
        _run(_cpu_kernels.forward, x, gate, weight, bias, y, options)
        ctx.save_for_backward(x, gate, weight, bias)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Any):
        x, gate, weight, bias = ctx.saved_tensors
        pieces = -(-x.numel() // (x.shape[-1] * _cpu_kernels.PIECE))
        dx, d_weight, d_bias = x.new_empty(x.shape), *(weight.new_zeros(pieces, *weight.shape) for _ in range(2))
        d_gate = x.new_empty(0, 0, 0) if gate is None else x.new_empty(x.shape)
        tensors = (gradients[0].contiguous(), dx, d_gate, d_weight, d_bias)
        _run(_cpu_kernels.backward, x, gate, weight, bias, *tensors, ctx.options)
        return dx, d_weight.sum(0), d_bias.sum(0) if ctx.has_bias else None, None if gate is None else d_gate, None


def _run(kernel: Any, x: Tensor, gate: Tensor | None, *others: Any) -> None:
    of_gate = rows_of(x.new_empty(0, 0, 0) if gate is None else gate)
    arrays = [m.detach().numpy() if isinstance(m, Tensor) else m for m in others]
    pieces = -(-x.numel() // (x.shape[-1] * _cpu_kernels.PIECE))
    x_and_gate = (*rows_of(x), *of_gate)
    run_in_threads(lambda first, stop: kernel(*x_and_gate, *arrays, first, stop), pieces, 16 * x.numel())
