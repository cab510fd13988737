"""Gated linear attention: the recurrence of Mamba-2, GLA, RWKV-6, RetNet and HGRN2.

    S_t = diag(exp g_t) S_{t-1} + k_t v_t^T                                            (1)
    o_t = q_t^T S_t                                                                    (2)
    o_t = q_t^T (S_{t-1} + diag(u) k_t v_t^T)            where a bonus u is given      (2')

with one log-decay g_t a head (Mamba-2) or one a head and key channel (GLA, RWKV-6), and heads in groups that share q
and k. ``reference.py`` is the sequential truth, ``chunked.py`` plain torch for any device, ``cpu.py`` the CPU kernel.
"""
