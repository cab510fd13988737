"""Mamba-1 (Gu & Dao 2023, arXiv 2312.00752): a selective scan, one decay a channel and state. FalconMamba is a setting.

the paper's    here         what it is
D, N           C, N         d_inner channels of d_state states each
Delta          dt           [B, T, C] step sizes, from a projection of rank dt_rank
A              A            [C, N] = -exp(A_log)
B, C           B, C         [B, T, N], shared by the channels
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from everlong.models._initialisation import draw_step_biases, start_projections
from everlong.models._linear import Linear
from everlong.models.config import Mamba1Config
from everlong.models.language_model import LanguageModel
from everlong.ops.backends import SelectiveScan, ShortConvolution
from everlong.ops.products import linear
from everlong.state import LeafSpec


class Mamba1Mixer(nn.Module):
    """Projection, short convolution, recurrence, gate, projection; parameters as in state-spaces/mamba."""

    def __init__(self, config: Mamba1Config, *, backend: str):
        super().__init__()
        self.config = config
        inner, states = config.d_inner, config.d_state
        self.widths = (config.time_step_rank, states, states)  # dt, B, C
        self.in_proj = Linear(config.d_model, 2 * inner, bias=config.bias)  # x, z
        self.conv1d = nn.Conv1d(inner, inner, config.d_conv, groups=inner, bias=config.conv_bias)
        self.x_proj = Linear(inner, sum(self.widths), bias=False)
        self.dt_proj = Linear(config.time_step_rank, inner)
        self.A_log = nn.Parameter(torch.empty(inner, states))
        self.D = nn.Parameter(torch.ones(inner))
        self.out_proj = Linear(inner, config.d_model, bias=config.bias)
        self.convolution = ShortConvolution(backend)
        self.recurrence = SelectiveScan(backend)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The published initialisation: A is S4D-real, -1 to -N in every channel; a setting scales it."""
        config = self.config
        scale = config.dt_scale * config.time_step_rank**-0.5
        with torch.no_grad():
            if config.dt_init == "constant":
                self.dt_proj.weight.fill_(scale)
            else:
                self.dt_proj.weight.uniform_(-scale, scale)
            self.dt_proj.bias.copy_(draw_step_biases(config.d_inner, config))
            self.A_log.copy_((config.A_init_scale * torch.arange(1.0, config.d_state + 1)).log())
        start_projections(self.in_proj, self.out_proj, config.n_layer)

    def leaves(self, layer: int, dtype: torch.dtype) -> list[LeafSpec]:
        """N states a channel, and the convolution's last inputs."""
        config = self.config
        wide = torch.promote_types(dtype, torch.float32)
        states, window = (config.d_inner, config.d_state), (config.d_conv - 1, config.d_inner)
        return [
            LeafSpec(layer=layer, name="recurrent", role="recurrent", shape=states, dtype=wide),
            LeafSpec(layer=layer, name="convolution", role="convolution", shape=window, dtype=dtype),
        ]

    def forward(
        self, u: Float[Tensor, "B T C"], state: dict[str, Tensor], resets: Bool[Tensor, "B T"] | None
    ) -> tuple[Float[Tensor, "B T C"], dict[str, Tensor]]:
        """Mixes u from the layer's state."""
        config = self.config
        wide = state["recurrent"].dtype
        x, z = self.in_proj(u).chunk(2, dim=-1)
        x, window = self.convolution(x, self.conv1d.weight, self.conv1d.bias, state["convolution"], resets)
        dt, B, C = self.x_proj(x).split(self.widths, dim=-1)
        if config.bcdt_rms:
            dt, B, C = (_root_mean_square_one(m, config.bcdt_rms_epsilon) for m in (dt, B, C))
        dt = linear(dt, self.dt_proj.weight)
        y, states = self.recurrence(
            x=x,
            dt=F.softplus(dt.to(wide) + self.dt_proj.bias.to(wide)),
            A=-self.A_log.to(wide).exp(),
            B=B,
            C=C,
            initial_state=state["recurrent"],
            resets=resets,
        )
        y = (y + self.D.to(y.dtype) * x) * F.silu(z)
        return self.out_proj(y), {"recurrent": states, "convolution": window}


class Mamba1(LanguageModel):
    """The Mamba-1 language model."""

    def __init__(self, config: Mamba1Config, *, backend: str = "auto"):
        super().__init__(config, lambda layer: Mamba1Mixer(config, backend=backend), backend=backend)


def _root_mean_square_one(x: Tensor, epsilon: float) -> Tensor:
    """FalconMamba's norm, which has no weight."""
    wide = torch.promote_types(x.dtype, torch.float32)
    return F.rms_norm(x.to(wide), x.shape[-1:], eps=epsilon).to(x.dtype)
