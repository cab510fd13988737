"""Which parameters weight decay falls on, for every optimizer that trains these models."""

from torch import nn

NEVER_DECAYED = (
    *("A_log", "D", "dt_bias"),  # in Mamba-1 some of these are matrices
    *("time_maa_w1", "time_maa_w2", "time_decay_w1", "time_decay_w2", "time_faaaa"),  # RWKV-6: as in RWKV-LM
)


def decays(name: str, parameter: nn.Parameter) -> bool:
    """Whether weight decay falls on a parameter.

    It falls on matrices and convolution filters; not on A_log, D, dt_bias, RWKV-6's time_* parameters, norms and
    biases, that is, on no parameter of one axis.
    """
    return parameter.ndim >= 2 and name.rsplit(".", 1)[-1] not in NEVER_DECAYED
