"""The selective scan: the recurrence of Mamba-1, with one decay a channel and state.

    h_t = exp(dt_t A) h_{t-1} + dt_t B_t x_t                                            (1)
    y_t = C_t . h_t                                                                     (2)

for every channel c and state n: A [C, N] is negative, dt_t and x_t belong to a channel, B_t and C_t to a state and are
shared by all channels. The skip D x is no part of it. ``reference.py`` is the sequential truth, ``chunked.py`` plain
torch for any device, ``cpu.py`` the CPU kernel.
"""
