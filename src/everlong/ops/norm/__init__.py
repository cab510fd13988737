"""The norms of the architectures over groups of the last axis, with the gate that stands before or after some of them.

    u = x, or x silu(gate) where the gate comes first                                   (1)
    n = (u - mean(u)) / sqrt(var(u) + epsilon) where centred, else u / sqrt(mean(u^2) + epsilon)    (2)
    y = n weight + bias, times silu(gate) where the gate comes last                     (3)

Mamba's RMSNorm is not centred and Mamba-2's gate comes first; GLA's comes last, as does RWKV-6's, whose norms are
centred. ``plain.py`` is the truth, in plain torch on any device; ``cpu.py`` the CPU kernel, one pass over memory.
"""
