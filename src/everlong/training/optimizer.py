"""AdamW with two groups of parameters: those that decay and those that do not."""

import torch
from torch import nn

from everlong.models._weight_decay import decays
from everlong.training.config import TrainingConfig


def adamw(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101) over the parameters that are trained.

    Weight decay falls where ``decays`` says. The loop sets the learning rate before each step.
    """
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (decayed if decays(name, parameter) else others).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    on_cpu = all(parameter.device.type == "cpu" for parameter in (*decayed, *others))
    # fused: one pass over memory where torch's default on a CPU makes a dozen, and a call for each of them
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=on_cpu or None)
