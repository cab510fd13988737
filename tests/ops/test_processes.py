"""The CPU kernels beside other processes: workers that are spawned, threads that follow torch's, compilation kept."""

import os
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch

from everlong.data.tokenizers import ByteTokenizer
from everlong.ops._cpu import run_in_threads
from everlong.ops.backends import SHORT_CONVOLUTION, why_not

pytestmark = pytest.mark.skipif(
    why_not("cpu", torch.device("cpu"), torch.float32) is not None, reason="Numba is not installed"
)
ENOUGH = 1 << 30  # multiplications: worth every thread


def convolve() -> torch.Tensor:
    random = torch.Generator().manual_seed(0)
    x, weight = torch.randn(4, 600, 512, generator=random), torch.randn(512, 1, 4, generator=random)
    return SHORT_CONVOLUTION["cpu"](x, weight, None, torch.zeros(4, 3, 512))[0]


def test_a_kernel_then_tokenization_by_spawned_workers_then_the_kernel_again():
    before, threads = convolve(), torch.get_num_threads()
    try:
        torch.set_num_threads(2)  # the pool of threads is up when the workers start
        convolve()
        texts = ["one", "two words", "drei"]
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            encoded = pool.map(ByteTokenizer().encode, texts)  # nothing of this module, which a worker would import
            assert [ids.tolist() for ids in encoded] == [list(text.encode()) for text in texts]
        assert torch.equal(convolve(), before)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_kernel_takes_no_more_threads_than_torch(threads):
    """So two processes of one thread each take two cores, whatever the machine has."""
    before, seen, together = torch.get_num_threads(), set(), threading.Barrier(threads)

    def kernel(first: int, stop: int) -> None:
        if first < threads:  # the first piece of each thread waits for the others'
            together.wait(timeout=10)
        seen.add(threading.get_ident())

    try:
        torch.set_num_threads(threads)
        run_in_threads(kernel, 4 * threads, ENOUGH)
    finally:
        torch.set_num_threads(before)
    assert len(seen) == threads


def test_a_second_process_compiles_nothing(tmp_path):
    """Compilation takes seconds and is kept on disk: the second process only reads it."""
    code = (
        "import numpy; from everlong.ops._activations import exp; exp(numpy.float32(1));"
        "print(sum(exp.stats.cache_hits.values()), sum(exp.stats.cache_misses.values()))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2] / "src")
    said = [
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    assert [line.split() for line in said] == [["0", "1"], ["1", "0"]]
