"""The products of activations with weights: by the fastest library that torch brings, in the precision asked for.

For float32 on a CPU torch calls MKL, which keeps to 256-bit vectors where the processor is not Intel's: oneDNN, which
comes with torch too, was twice as fast there (Zen 5: 240 against 104 GFLOP/s a core) and as exact. Its products of
bfloat16, accumulated in float32, were twice as fast again.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

Precision = Literal["float32", "bfloat16"]
FEW = 16  # rows: below this a product waits for its weights, and torch's own call costs less
_precision: ContextVar[Precision] = ContextVar("precision", default="float32")


@contextmanager
def products_in(precision: Precision) -> Iterator[None]:
    """Within this context, float32 products read their factors, and give their results, in this precision.

    Sums within a product are float32 in either case, and what is no product with a weight is not touched. The products
    of a backward pass follow those of their forward pass.
    """
    before = _precision.set(precision)
    try:
        yield
    finally:
        _precision.reset(before)


def linear(
    x: Float[Tensor, "*axes K"], weight: Float[Tensor, "N K"], bias: Float[Tensor, " N"] | None = None
) -> Float[Tensor, "*axes N"]:
    """The function torch.nn.functional.linear: x W^T + bias.

    Args:
        x: activations.
        weight: of any strides; a transposed matrix costs no copy.
        bias: one a column, or None.
    """
    rows = x.numel() // max(x.shape[-1], 1)
    single = x.dtype == weight.dtype == torch.float32 and not torch.is_autocast_enabled(x.device.type)
    low = _precision.get() == "bfloat16"
    # torch.compile chooses its products itself, and cannot trace into oneDNN's
    ours = x.device.type == "cpu" and rows >= FEW and not torch.compiler.is_compiling() and _vectors_are_wide()
    if not single or not (low or ours):
        return F.linear(x, weight, bias)
    flat: Any = _Product.apply(x.reshape(-1, x.shape[-1]), weight, low)
    y = flat.view(*x.shape[:-1], weight.shape[0])
    return y if bias is None else y + bias


class _Product(torch.autograd.Function):
    """X W^T for X [M, K], W [N, K]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, low: bool) -> Tensor:
        ctx.low = low
        if low:
            x, weight = x.bfloat16(), weight.bfloat16()
        ctx.save_for_backward(x, weight)
        return _product(x, weight)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        gradient = gradients[0].bfloat16() if ctx.low else gradients[0]
        d_x = _product(gradient, weight.t()) if ctx.needs_input_grad[0] else None
        d_weight = None
        if ctx.needs_input_grad[1]:
            if weight.shape[0] > weight.shape[1]:  # oneDNN is faster with the longer axis in the lanes
                d_weight = _product(x.t(), gradient.t()).t().contiguous()
            else:
                d_weight = _product(gradient.t(), x.t())
        return d_x, d_weight, None


def _product(a: Tensor, b: Tensor) -> Tensor:
    """A B^T in float32, for A [M, K], B [N, K] of any strides."""
    if a.dtype == torch.bfloat16:
        return torch.mm(a, b.t()).float()
    return torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")


@cache
def _vectors_are_wide() -> bool:
    """Whether this is where oneDNN was measured to be faster: x86 with AVX-512."""
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    return wide and torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
