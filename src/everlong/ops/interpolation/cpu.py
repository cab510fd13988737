"""The CPU kernel, compiled by Numba, forward and backward; what is kept for the backward pass is the inputs.

Results do not depend on the number of threads: sums over tokens are of pieces of fixed size.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from everlong.ops._cpu import run_in_threads
from everlong.ops._inputs import check_length
from everlong.ops.interpolation import _cpu_kernels, plain

FEW = 16  # tokens: below this a call of the kernel costs more than the passes over memory that it saves


def interpolation(
    x: Float[Tensor, "B T C"],
    weights: Sequence[Float[Tensor, " C"]],
    changes: Sequence[Float[Tensor, "B T C"]],
    initial_state: Float[Tensor, "B C"],
    *,
    resets: Bool[Tensor, "B T"] | None = None,
) -> tuple[tuple[Float[Tensor, "B T C"], ...], Float[Tensor, "B C"]]:
    """The same function as ``plain.interpolation``, in float32."""
    check_length(x)
    if x.shape[0] * x.shape[1] < FEW:
        return plain.interpolation(x, weights, changes, initial_state, resets=resets)
    moves = (change.float() for change in changes)
    stacked = torch.stack(tuple(weights)).float()
    outputs: Any = _Interpolation.apply(resets, x.float(), stacked, initial_state.float(), *moves)
    final = x[:, -1].to(initial_state.dtype, copy=True)  # a view would keep every input alive
    return tuple(y.to(x.dtype) for y in outputs), final


class _Interpolation(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, resets, x, weights, initial_state, *changes):
        resets = torch.zeros(x.shape[0], 0, dtype=torch.bool) if resets is None else resets.contiguous()
        inputs = [m.contiguous() for m in (x, weights, initial_state, *changes)]
        x, weights, _, *changes = inputs
        outputs = tuple(torch.empty_like(x) for _ in weights)
        _run(_cpu_kernels.forward, resets, inputs, _arrays(outputs))
        ctx.save_for_backward(resets, *inputs)
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Any):
        resets, *inputs = ctx.saved_tensors
        x, weights, state, *changes = inputs
        pieces = -(-x.shape[0] * x.shape[1] // _cpu_kernels.PIECE)
        dx, d_state, d_weights = torch.empty_like(x), torch.zeros_like(state), x.new_zeros(pieces, *weights.shape)
        d_changes = [torch.empty_like(x) for _ in changes]
        errors = _arrays([m.contiguous() for m in gradients])
        others = (dx.numpy(), d_weights.numpy(), _arrays(d_changes or [x[:0, :0]]), d_state.numpy())
        _run(_cpu_kernels.backward, resets, inputs, errors, *others)
        return None, dx, d_weights.sum(0), d_state, *d_changes


def _arrays(tensors: Sequence[Tensor]) -> tuple[Any, ...]:
    return tuple(m.detach().numpy() for m in tensors)


def _run(kernel: Any, resets: Tensor, inputs: Sequence[Tensor], *others: Any) -> None:
    x, weights, state, *changes = inputs
    of_changes = _arrays(changes or [x[:0, :0]])
    arrays = (*_arrays((x, weights)), of_changes, *_arrays((state, resets)), *others)
    pieces = -(-x.shape[0] * x.shape[1] // _cpu_kernels.PIECE)
    run_in_threads(lambda first, stop: kernel(*arrays, first, stop), pieces, 4 * x.numel() * len(weights))
