"""AdamW with two groups of parameters: those that decay and those that do not."""

import torch
from torch import nn

from everlong.training.config import TrainingConfig

NEVER_DECAYED = (
    *("A_log", "D", "dt_bias"),  # in Mamba-1 some of these are matrices
    *("time_maa_w1", "time_maa_w2", "time_decay_w1", "time_decay_w2", "time_faaaa"),  # RWKV-6: as in RWKV-LM
)


def adamw(model: nn.Module, config: TrainingConfig) -> torch.optim.AdamW:
    """AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101) over the parameters that are trained.

    Weight decay falls on matrices and convolution filters; not on A_log, D, dt_bias, RWKV-6's time_* parameters, norms
    and biases, that is, on no parameter of one axis. The loop sets the learning rate before each step.
    """
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            exempt = parameter.ndim < 2 or name.rsplit(".", 1)[-1] in NEVER_DECAYED
            (others if exempt else decayed).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    on_cpu = all(parameter.device.type == "cpu" for parameter in (*decayed, *others))
    # fused: one pass over memory where torch's default on a CPU makes a dozen, and a call for each of them
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, fused=on_cpu or None)
