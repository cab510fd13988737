"""The norms of the architectures, computed in float32 or wider and given back in the weight's dtype."""

from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from everlong.ops.backends import NORM, Operation
from everlong.ops.norm.plain import Order


class _Norm(Operation):
    op = NORM
    centred: ClassVar[bool]
    bias: Tensor | None

    def __init__(
        self, width: int, *, epsilon: float, groups: int = 1, gate_comes: Order = "last", backend: str = "auto"
    ):
        super().__init__(backend)
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon, self.groups = epsilon, groups
        self.gate_comes: Order = gate_comes

    def forward(self, x: Float[Tensor, "*axes C"], gate: Float[Tensor, "*axes C"] | None = None) -> Tensor:
        """Normalises [*axes, C], with the gate before or after; the result is in the weight's dtype."""
        return self.served(x)(
            *(x, self.weight, self.bias, gate),
            epsilon=self.epsilon,
            groups=self.groups,
            centred=self.centred,
            gate_comes=self.gate_comes,
        )


class RMSNorm(_Norm):
    """x / rms(x) * weight over groups of the last axis."""

    centred = False
    bias = None


class LayerNorm(_Norm):
    """(x - mean(x)) / std(x) * weight + bias over groups of the last axis; with groups it is known as group norm."""

    centred = True

    def __init__(
        self, width: int, *, epsilon: float, groups: int = 1, gate_comes: Order = "last", backend: str = "auto"
    ):
        super().__init__(width, epsilon=epsilon, groups=groups, gate_comes=gate_comes, backend=backend)
        self.bias = nn.Parameter(torch.zeros(width))


Norm = RMSNorm | LayerNorm
