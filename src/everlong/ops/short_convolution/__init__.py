"""The short causal convolution of Mamba and GLA, one filter a channel, and the SiLU that follows it everywhere.

    a_t = bias + sum_d weight[D - 1 - d] x_{t - d}                                      (1)
    y_t = silu(a_t) = a_t sigmoid(a_t)                                                  (2)

The W = D - 1 inputs before the first come from the state. ``plain.py`` is the truth, in plain torch on any device;
``cpu.py`` the CPU kernel, one pass over memory instead of D + 1.
"""
