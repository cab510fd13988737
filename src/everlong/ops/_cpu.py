"""What the Numba kernels share: how they are compiled, and the threads that they run on."""

import inspect
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numba
import numpy as np
import torch

LITTLE = 1 << 21  # multiplications; a second thread takes longer to wake than to do fewer


def compiled(function: Any) -> Any:
    """Numba's njit, kept on disk for later processes where any folder can be written to."""
    # nothing that would let LLVM assume away a NaN or an infinity
    function = inspect.unwrap(function)  # tests check types at run time by wrapping every function
    options = {"nogil": True, "fastmath": {"contract", "reassoc", "nsz"}, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:  # "cannot cache function": neither this folder nor the user's cache is writable
        return numba.njit(cache=False, **options)(function)


def rows_of(x: torch.Tensor) -> tuple[np.ndarray, tuple[int, int, int]]:
    """The memory of a tensor [B, T, C], which may be a slice of a wider one, as one flat array, and its place in it.

    The place is (start, step of a row, step of a token); the last axis has to be contiguous.
    """
    assert x.stride(-1) == 1, "the kernels' lanes lie side by side"
    size = x.untyped_storage().nbytes() // x.element_size()
    return x.detach().as_strided((size,), (1,), 0).numpy(), (int(x.storage_offset()), x.stride(0), x.stride(1))


def run_in_threads(kernel: Callable[[int, int], object], units: int, work: int) -> None:
    """Runs a kernel over its units of work on as many threads as torch uses.

    Args:
        kernel: does units first to stop - 1; it must release the interpreter's lock.
        units: their number.
        work: multiplications of all units together.
    """
    threads = min(torch.get_num_threads(), units) if work > LITTLE else 1
    pieces = min(units, 4 * threads) if threads > 1 else 1  # more than threads: a slow core takes fewer
    bounds = iter([(n * units // pieces, (n + 1) * units // pieces) for n in range(pieces)])

    def run() -> None:
        for first, stop in bounds:  # one iterator for all threads
            kernel(first, stop)

    helpers = [_pool(os.getpid()).submit(run) for _ in range(threads - 1)]
    run()
    for helper in helpers:
        helper.result()


@cache
def _pool(process: int) -> ThreadPoolExecutor:
    """Python's threads, one pool a process.

    Not Numba's parallel loops: their OpenMP is another than torch's, so the idle threads of the one spin in the way of
    the other's, and a process that has used it is ended when it forks.
    """
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="everlong.ops")
