"""Activations for Numba kernels, in arithmetic alone, which LLVM vectorises as it does not the library's exp.

Numba's cache on disk does not see changes of this file: touch the kernels' files after one.
"""

import math

import numpy as np

from everlong.ops._cpu import compiled

LOG2E = np.float32(1 / math.log(2))
LN2_HIGH = np.float32(0.693359375)  # few bits: a small whole number times it is exact
LN2_LOW = np.float32(math.log(2) - 0.693359375)
TAYLOR = tuple(np.float32(1 / math.factorial(n)) for n in range(8))
ONE = np.float32(1)


@compiled
def exp(x):
    """The exponential of a float32, to 2e-7 of itself, held between e^-87 and e^88; not-a-number gives some number."""
    x = min(max(x, np.float32(-87)), np.float32(88))
    whole = np.rint(x * LOG2E)
    part = x - whole * LN2_HIGH - whole * LN2_LOW
    power = TAYLOR[7] * part + TAYLOR[6]
    power = power * part + TAYLOR[5]
    power = power * part + TAYLOR[4]
    power = power * part + TAYLOR[3]
    power = power * part + TAYLOR[2]
    power = power * part + TAYLOR[1]
    power = power * part + TAYLOR[0]
    return power * np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)).view(np.float32)


@compiled
def sigmoid(x):
    """1 / (1 + exp(-x)), to 3e-7 of itself."""
    return ONE / (ONE + exp(-x))
