"""The interpolations of RWKV: between every token's input and the one before it, with weights that may move.

    d_t = x_{t-1} - x_t                                                                 (1)
    y_{i,t} = x_t + d_t (w_i + m_{i,t})                                                 (2)

The input before the first comes from the state. ``plain.py`` is the truth, in plain torch on any device; ``cpu.py`` the
CPU kernel, one pass over memory for all i.
"""
