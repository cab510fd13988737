"""What the contract suites of all ops share: an op's results with all gradients, and how they are compared."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from everlong.ops.backends import why_not
from everlong.registry import Registry

CPU = torch.device("cpu")
BOUNDS = {torch.float64: 1e-12, torch.float32: 1e-5}

Inputs = dict[str, Tensor]
Operation = Callable[..., tuple[Tensor, Tensor]]
TIMELESS = ("A", "bonus", "initial_state")
"""Inputs that have no time axis."""


def slices(inputs: Inputs, start: int, stop: int) -> Inputs:
    """Tokens start to stop - 1; what has no time axis is kept."""
    return {n: x if n in TIMELESS else x[:, start:stop] for n, x in inputs.items()}


def in_pieces(operation: Operation, sizes: Sequence[int]) -> Operation:
    """The operation in calls of ``sizes`` tokens, each from the state that the one before it left."""

    def run(**inputs: Tensor) -> tuple[Tensor, Tensor]:
        state, start, parts = inputs["initial_state"], 0, []
        for size in sizes:
            part, state = operation(**{**slices(inputs, start, start + size), "initial_state": state})
            parts.append(part)
            start += size
        return torch.cat(parts, dim=1), state

    return run


def servers(op: Registry, dtype: torch.dtype = torch.float32) -> list[str]:
    """The backends that serve a dtype on this machine."""
    return [name for name in op if why_not(name, CPU, dtype) is None]


def results(operation: Operation, inputs: Inputs, dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """Outputs, the final state, and the gradients of all inputs under fixed random weights of both."""
    leaves = {n: x if x.dtype == torch.bool else x.to(dtype, copy=True).requires_grad_() for n, x in inputs.items()}
    outputs, state = operation(**leaves)
    random = torch.Generator().manual_seed(1)
    weights = [torch.randn(x.shape, generator=random).to(x.dtype) for x in (outputs, state)]
    loss = (outputs * weights[0]).sum() + (state * weights[1]).sum()
    floating = {n: x for n, x in leaves.items() if x.dtype != torch.bool}
    gradients = torch.autograd.grad(loss, list(floating.values()))
    named = {f"gradient of {n}": x for n, x in zip(floating, gradients, strict=True)}
    return {"outputs": outputs.detach(), "final state": state.detach(), **named}


def check(actual: dict[str, Tensor], exact: dict[str, Tensor], bound: float) -> None:
    """An error is relative to 1 + the largest magnitude of the exact tensor."""
    assert actual.keys() == exact.keys()
    for name, x in actual.items():
        assert x.shape == exact[name].shape, name
        error = (x.double() - exact[name]).abs().max() / (1 + exact[name].abs().max())
        assert error <= bound, f"{name}: error {error:.1e}, bound {bound:.0e}"  # a NaN fails too


def gradients_of(operation: Operation, part: int, inputs: Inputs, dtype: torch.dtype) -> dict[str, Tensor]:
    """The gradients of a loss on only one of the two results."""
    leaves = {n: x.to(dtype, copy=True).requires_grad_() for n, x in inputs.items()}
    loss = operation(**leaves)[part].square().sum()
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(leaves, found, strict=True))


def strided(operation: Operation) -> Operation:
    """The operation on inputs that are not contiguous, and whose output's gradient is not either."""

    def run(**inputs: Tensor) -> tuple[Tensor, Tensor]:
        turned = {n: x.transpose(0, -1).contiguous().transpose(0, -1) for n, x in inputs.items()}
        assert not any(x.is_contiguous() for x in turned.values())
        outputs, state = operation(**turned)
        return outputs.transpose(0, 1).contiguous().transpose(0, 1), state

    return run
