"""The norms of the architectures, computed in float32 or wider and given back in the weight's dtype."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    """x / rms(x) * weight over groups of the last axis; gated: x is first times silu(gate)."""

    def __init__(self, width: int, *, epsilon: float, groups: int = 1):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon
        self.groups = groups

    def forward(self, x: Float[Tensor, "*axes C"], gate: Float[Tensor, "*axes C"] | None = None) -> Tensor:
        """Normalises [*axes, C]; the result is in the weight's dtype."""
        wide = torch.promote_types(x.dtype, torch.float32)
        x = x.to(wide) if gate is None else x.to(wide) * F.silu(gate.to(wide))
        grouped = x.unflatten(-1, (self.groups, -1)) if self.groups > 1 else x.unsqueeze(-2)
        scale = (grouped.square().mean(-1, keepdim=True) + self.epsilon).rsqrt()
        return (grouped * scale).flatten(-2).to(self.weight.dtype) * self.weight


class LayerNorm(nn.Module):
    """(x - mean(x)) / std(x) * weight + bias over groups of the last axis; with groups it is known as group norm."""

    def __init__(self, width: int, *, epsilon: float, groups: int = 1):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.epsilon = epsilon
        self.groups = groups

    def forward(self, x: Float[Tensor, "*axes C"]) -> Tensor:
        """Normalises [*axes, C]; the result is in the weight's dtype."""
        grouped = x.to(torch.promote_types(x.dtype, torch.float32)).unflatten(-1, (self.groups, -1))
        normed = F.layer_norm(grouped, grouped.shape[-1:], eps=self.epsilon).flatten(-2)
        return normed.to(self.weight.dtype) * self.weight + self.bias


Norm = RMSNorm | LayerNorm
