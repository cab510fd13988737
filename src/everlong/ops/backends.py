"""Which backend of an op serves on this machine: the one place that knows what is installed and what each can do."""

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, ClassVar

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
INTERPOLATION = Registry(
    "backend",
    {
        "chunked": "everlong.ops.interpolation.plain:interpolation",
        "cpu": "everlong.ops.interpolation.cpu:interpolation",
        "reference": "everlong.ops.interpolation.plain:interpolation",
    },
)
NORM = Registry(
    "backend",
    {
        "chunked": "everlong.ops.norm.plain:norm",
        "cpu": "everlong.ops.norm.cpu:norm",
        "reference": "everlong.ops.norm.plain:norm",
    },
)
SHORT_CONVOLUTION = Registry(
    "backend",
    {
        "chunked": "everlong.ops.short_convolution.plain:short_convolution",
        "cpu": "everlong.ops.short_convolution.cpu:short_convolution",
        "reference": "everlong.ops.short_convolution.plain:short_convolution",
    },
)
SELECTIVE_SCAN = Registry(
    "backend",
    {
        "chunked": "everlong.ops.selective_scan.chunked:selective_scan",
        "cpu": "everlong.ops.selective_scan.cpu:selective_scan",
        "reference": "everlong.ops.selective_scan.reference:selective_scan",
    },
)
BACKENDS = tuple(sorted({*GATED_LINEAR_ATTENTION, *SELECTIVE_SCAN}))
"""The names that some op has a backend of."""


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


def choose(requested: str, device: torch.device, dtype: torch.dtype, op: Registry | None = None) -> str:
    """The backend to use: ``requested``, or for "auto" the fastest that serves.

    Args:
        requested: "auto" or a backend's name.
        device: where the state is.
        dtype: the state's.
        op: the backends of an op; None: those of any, before the op is known.

    Raises:
        EverlongError: the requested backend is unknown or cannot serve, with the reason.
    """
    known = BACKENDS if op is None else tuple(op)
    if requested == "auto":
        return next(name for name in ("cpu", "chunked") if name in known and not why_not(name, device, dtype))
    if requested not in known:
        raise EverlongError(f"unknown backend {requested!r}; known: auto, {', '.join(known)}")
    reason = why_not(requested, device, dtype)
    if reason:
        raise EverlongError(f"backend {requested!r} cannot serve here: {reason}; use --backend auto")
    return requested


class Operation(torch.nn.Module):
    """A submodule through which a model calls an op."""

    op: ClassVar[Registry]

    def __init__(self, backend: str = "auto"):
        super().__init__()
        self.backend = backend

    def choose(self, device: torch.device, dtype: torch.dtype) -> str:
        """The name of the backend that serves states of a device and dtype."""
        return choose(self.backend, device, dtype, self.op)

    def extra_repr(self) -> str:
        """Shown in the model's repr."""
        return f"backend={self.backend}"

    def served(self, x: torch.Tensor) -> Any:
        """The backend, to be called, for activations like ``x``, which are computed in float32 or wider."""
        return self.op[self.choose(x.device, torch.promote_types(x.dtype, torch.float32))]


class Recurrence(Operation):
    """The submodule ``recurrence`` of a mixer: forward hooks can watch it.

    Call it with the op's named inputs; ``initial_state`` says where it runs.
    """

    def forward(self, **inputs: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``reference.py`` of the op."""
        state = inputs["initial_state"]
        assert state is not None
        return self.op[self.choose(state.device, state.dtype)](**inputs)


class GatedLinearAttention(Recurrence):
    """Inputs q, k, v, log_decay, initial_state, and optionally bonus and resets."""

    op = GATED_LINEAR_ATTENTION


class SelectiveScan(Recurrence):
    """Inputs x, dt, A, B, C, initial_state, and optionally resets."""

    op = SELECTIVE_SCAN


class ShortConvolution(Operation):
    """The short convolution and SiLU; the filters are the mixer's own."""

    op = SHORT_CONVOLUTION

    def forward(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        initial_state: torch.Tensor,
        resets: torch.Tensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See ``short_convolution/plain.py``."""
        return self.served(x)(x, weight, bias, initial_state, resets=resets)


class Interpolation(Operation):
    """RWKV's interpolations between each token's input and the one before it."""

    op = INTERPOLATION

    def forward(
        self,
        x: torch.Tensor,
        weights: Sequence[torch.Tensor],
        initial_state: torch.Tensor,
        resets: torch.Tensor | None,
        changes: Sequence[torch.Tensor] = (),
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        """See ``interpolation/plain.py``."""
        return self.served(x)(x, weights, changes, initial_state, resets=resets)


@cache
def _installed(package: str) -> bool:
    return find_spec(package) is not None
