"""Mamba-2 (Dao & Gu 2024, arXiv 2405.21060): gated linear attention with one decay a head.

the paper's    here         what it is
N, P           K, V         d_state, headdim
C, B           q, k         [B, T, G, K], shared by the heads of a group
dt x           v            [B, T, H, V]
dt A           log_decay    [B, T, H], A = -exp(A_log)
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from everlong.models._initialisation import draw_step_biases, start_projections
from everlong.models._linear import Linear
from everlong.models._norms import RMSNorm
from everlong.models.config import Mamba2Config
from everlong.models.language_model import LanguageModel
from everlong.ops.backends import GatedLinearAttention, ShortConvolution
from everlong.state import LeafSpec


class Mamba2Mixer(nn.Module):
    """Projection, short convolution, recurrence, gated norm, projection; parameters as in state-spaces/mamba."""

    def __init__(self, config: Mamba2Config, *, backend: str):
        super().__init__()
        self.config = config
        inner, keys = config.d_inner, config.ngroups * config.d_state
        self.widths = (inner, inner + 2 * keys, config.nheads)  # z | x, B, C | dt
        self.in_proj = Linear(config.d_model, sum(self.widths), bias=config.bias)
        self.conv1d = nn.Conv1d(
            inner + 2 * keys, inner + 2 * keys, config.d_conv, groups=inner + 2 * keys, bias=config.conv_bias
        )
        self.dt_bias = nn.Parameter(torch.empty(config.nheads))
        self.A_log = nn.Parameter(torch.empty(config.nheads))
        self.D = nn.Parameter(torch.ones(config.nheads))
        self.norm = RMSNorm(
            inner, epsilon=config.norm_epsilon, groups=config.ngroups, gate_comes="first", backend=backend
        )
        self.out_proj = Linear(inner, config.d_model, bias=config.bias)
        self.convolution = ShortConvolution(backend)
        self.recurrence = GatedLinearAttention(backend)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The published initialisation; A may be log-spaced over the heads instead of drawn."""
        config = self.config
        biases = draw_step_biases(config.nheads, config)
        low, high = config.A_init_range
        if config.A_init == "uniform":
            rates = torch.empty(config.nheads).uniform_(low, high)
        else:
            rates = torch.logspace(math.log10(low), math.log10(high), config.nheads)
        with torch.no_grad():
            self.dt_bias.copy_(biases)
            self.A_log.copy_(rates.log())
        start_projections(self.in_proj, self.out_proj, config.n_layer)

    def leaves(self, layer: int, dtype: torch.dtype) -> list[LeafSpec]:
        """A matrix a head, and the convolution's last inputs (x, B and C before it)."""
        config = self.config
        wide = torch.promote_types(dtype, torch.float32)
        matrix = (config.nheads, config.d_state, config.headdim)
        window = (config.d_conv - 1, self.widths[1])
        return [
            LeafSpec(layer=layer, name="recurrent", role="recurrent", shape=matrix, dtype=wide),
            LeafSpec(layer=layer, name="convolution", role="convolution", shape=window, dtype=dtype),
        ]

    def forward(
        self, u: Float[Tensor, "B T C"], state: dict[str, Tensor], resets: Bool[Tensor, "B T"] | None
    ) -> tuple[Float[Tensor, "B T C"], dict[str, Tensor]]:
        """Mixes u from the layer's state."""
        config = self.config
        wide = state["recurrent"].dtype
        z, xBC, dt = self.in_proj(u).split(self.widths, dim=-1)
        xBC, window = self.convolution(xBC, self.conv1d.weight, self.conv1d.bias, state["convolution"], resets)
        keys = config.ngroups * config.d_state
        x, B, C = xBC.split([config.d_inner, keys, keys], dim=-1)
        x = x.unflatten(-1, (config.nheads, config.headdim))
        B, C = (m.unflatten(-1, (config.ngroups, config.d_state)) for m in (B, C))
        dt = F.softplus(dt.to(wide) + self.dt_bias.to(wide))
        if config.dt_limit != (0.0, math.inf):
            dt = dt.clamp(*config.dt_limit)
        A = -self.A_log.to(wide).exp()
        o, matrix = self.recurrence(
            q=C,
            k=B,
            v=(dt.unsqueeze(-1) * x).to(x.dtype),
            log_decay=dt * A,
            initial_state=state["recurrent"],
            resets=resets,
        )
        y = o + self.D.to(o.dtype).unsqueeze(-1) * x
        y = self.norm(y.flatten(-2), gate=z)
        return self.out_proj(y), {"recurrent": matrix, "convolution": window}


class Mamba2(LanguageModel):
    """The Mamba-2 language model."""

    def __init__(self, config: Mamba2Config, *, backend: str = "auto"):
        super().__init__(config, lambda layer: Mamba2Mixer(config, backend=backend), backend=backend)
