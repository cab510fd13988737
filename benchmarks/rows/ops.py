"""An op, forward and backward, on the fast kernel against plain torch in chunks."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.measure import Measurement, Work, compare
from benchmarks.settings import Settings
from benchmarks.shapes import LENGTH, ROWS
from everlong.ops.backends import GATED_LINEAR_ATTENTION, SELECTIVE_SCAN
from everlong.registry import Registry


def scalar_decay(settings: Settings) -> Measurement:
    """Mamba-2's shape: 8 heads of 128 x 64 that share one q and k."""
    return _compare(settings, GATED_LINEAR_ATTENTION, _attention(groups=1, heads=8, keys=128, values=64, vector=False))


def vector_decay(settings: Settings) -> Measurement:
    """GLA's shape: 4 heads of 64 x 64, a decay a key channel."""
    return _compare(settings, GATED_LINEAR_ATTENTION, _attention(groups=4, heads=4, keys=64, values=64, vector=True))


def scan(settings: Settings) -> Measurement:
    """Mamba-1's shape: 512 channels of 16 states."""
    channels, states = 512, 16
    inputs = {
        "x": _normal(ROWS, LENGTH, channels),
        "dt": F.softplus(_normal(ROWS, LENGTH, channels) - 4),
        "A": -torch.arange(1.0, states + 1).repeat(channels, 1),
        "B": _normal(ROWS, LENGTH, states),
        "C": _normal(ROWS, LENGTH, states),
        "initial_state": _normal(ROWS, channels, states),
    }
    return _compare(settings, SELECTIVE_SCAN, inputs)


def _attention(*, groups: int, heads: int, keys: int, values: int, vector: bool) -> dict[str, Tensor]:
    decays = _normal(ROWS, LENGTH, heads, keys) if vector else _normal(ROWS, LENGTH, heads)
    return {
        "q": _normal(ROWS, LENGTH, groups, keys),
        "k": _normal(ROWS, LENGTH, groups, keys),
        "v": _normal(ROWS, LENGTH, heads, values),
        "log_decay": F.logsigmoid(decays) / 16,
        "initial_state": _normal(ROWS, heads, keys, values),
    }


def _compare(settings: Settings, op: Registry, inputs: dict[str, Tensor]) -> Measurement:
    works: dict[str, Work] = {name: _work(op[name], inputs) for name in ("cpu", "chunked")}
    return compare(works, settings.repeats, over="chunked", under="cpu", note=f"{ROWS} rows of {LENGTH} tokens")


def _work(operation: Any, inputs: dict[str, Tensor]) -> Work:
    leaves = {name: x.clone().requires_grad_() for name, x in inputs.items()}
    results = operation(**leaves)
    weights = [_normal(*x.shape) for x in results]

    def work() -> None:
        torch.autograd.grad(operation(**leaves), list(leaves.values()), weights)

    return work


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
