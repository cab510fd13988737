"""Which backend of an op serves on this machine: the one place that knows what is installed and what each can do."""

from collections.abc import Callable
from functools import cache
from importlib.util import find_spec

import torch

from everlong.errors import EverlongError
from everlong.registry import Registry

GATED_LINEAR_ATTENTION = Registry(
    "backend",
    {
        "chunked": "everlong.ops.gated_linear_attention.chunked:gated_linear_attention",
        "cpu": "everlong.ops.gated_linear_attention.cpu:gated_linear_attention",
        "reference": "everlong.ops.gated_linear_attention.reference:gated_linear_attention",
    },
)


def why_not(backend: str, device: torch.device, dtype: torch.dtype) -> str | None:
    """Why a backend cannot serve states of a device and dtype, or None where it can."""
    if backend != "cpu":
        return None
    if device.type != "cpu":
        return f"the cpu kernel serves CPU tensors, these are on {device.type}"
    if dtype != torch.float32:
        return f"the cpu kernel computes in float32, the state is {dtype}"
    if not _installed("numba"):
        return "Numba is not installed (pip install numba)"
    return None


def choose(requested: str, device: torch.device, dtype: torch.dtype) -> str:
    """The backend to use: ``requested``, or for "auto" the fastest that serves.

    Raises:
        EverlongError: the requested backend is unknown or cannot serve, with the reason.
    """
    if requested == "auto":
        return "chunked" if why_not("cpu", device, dtype) else "cpu"
    if requested not in GATED_LINEAR_ATTENTION:
        raise EverlongError(f"unknown backend {requested!r}; known: auto, {', '.join(GATED_LINEAR_ATTENTION)}")
    reason = why_not(requested, device, dtype)
    if reason:
        raise EverlongError(f"backend {requested!r} cannot serve here: {reason}; use --backend auto")
    return requested


class GatedLinearAttention(torch.nn.Module):
    """The parameterless submodule ``recurrence`` through which a mixer calls its op: forward hooks can watch it.

    Call it with named inputs (q, k, v, log_decay, initial_state, and optionally bonus and resets).
    """

    def __init__(self, backend: str = "auto"):
        super().__init__()
        self.backend = backend

    def forward(self, **inputs: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``gated_linear_attention.reference``."""
        state = inputs["initial_state"]
        assert state is not None
        op: Callable = GATED_LINEAR_ATTENTION[choose(self.backend, state.device, state.dtype)]
        return op(**inputs)

    def extra_repr(self) -> str:
        """Shown in the model's repr."""
        return f"backend={self.backend}"


@cache
def _installed(package: str) -> bool:
    return find_spec(package) is not None
