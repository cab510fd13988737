"""What the published initialisations of the Mamba family have in common."""

import math

import torch
from torch import Tensor, nn

from everlong.models.config import MambaConfig


def draw_step_biases(count: int, config: MambaConfig) -> Tensor:
    """Biases whose softplus is log-uniform between dt_min and dt_max."""
    log_min, log_max = math.log(config.dt_min), math.log(config.dt_max)
    dt = torch.exp(log_min + torch.rand(count) * (log_max - log_min)).clamp(min=config.dt_init_floor)
    return dt + torch.log(-torch.expm1(-dt))  # the inverse of softplus


@torch.no_grad()
def start_projections(into: nn.Linear, out_of: nn.Linear, n_layer: int) -> None:
    """Zero biases, and a projection back into the residual stream that is scaled by its depth (GPT-2's scheme)."""
    out_of.weight.div_(math.sqrt(n_layer))
    for projection in (into, out_of):
        if projection.bias is not None:
            projection.bias.zero_()
