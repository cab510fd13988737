"""llama.cpp in a process of its own, which reads on from where it stopped each time it is told to.

The child (`python -m benchmarks.peers.llama_cpp MODEL TOKENS THREADS`) answers lines on its standard input: "N" reads
the next N tokens, all logits computed, and prints the seconds; "N PATH" also saves the logits. It brings an OpenMP of
its own, whose threads would stand in the way of torch's.
"""

import ctypes
import sys
import tempfile
import time
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import NotAvailable
from benchmarks.peers.beside import Beside

BATCH, AT_ONCE = 2048, 512  # tokens a call, and those computed together: llama.cpp's own defaults


class LlamaCpp(Beside):
    """A model read by llama.cpp, one row of tokens.

    Args:
        model: a GGUF file.
        tokens: [L] ids.
        threads: to compute with.
        wait: how idle threads wait, OMP_WAIT_POLICY; None: as its OpenMP does by default.

    Raises:
        NotAvailable: llama.cpp is not installed, or does not take the model.
    """

    def __init__(self, model: Path, tokens: np.ndarray, threads: int, wait: str | None):
        if find_spec("llama_cpp") is None:
            raise NotAvailable("llama.cpp is not built here (see benchmarks/requirements.txt)")
        self._folder = tempfile.TemporaryDirectory(prefix="everlong-benchmark-")
        path = Path(self._folder.name) / "tokens.npy"
        np.save(path, tokens.astype(np.int32))
        super().__init__("llama.cpp", __name__, (str(model), str(path), str(threads)), wait)

    def read(self, count: int) -> float:
        """Reads the next tokens; returns the seconds."""
        return self.ask(str(count))

    def logits(self, count: int) -> tuple[np.ndarray, float]:
        """Reads the next tokens; returns their logits [count, S], and the seconds."""
        path = Path(self._folder.name) / "logits.npy"
        seconds = self.ask(f"{count} {path}")
        return np.load(path), seconds


def main(model: str, tokens: str, threads: int) -> None:
    """The child."""
    llama_cpp: Any = import_module("llama_cpp")  # by name: checkers need not have it installed
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    loaded = llama_cpp.llama_model_load_from_file(model.encode(), llama_cpp.llama_model_default_params())
    if not loaded:
        sys.exit("the model cannot be loaded")
    ids = np.load(tokens)
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx, settings.n_batch, settings.n_ubatch, settings.n_outputs_max = len(ids), BATCH, AT_ONCE, BATCH
    settings.n_threads = settings.n_threads_batch = threads
    context = llama_cpp.llama_init_from_model(loaded, settings)
    if not context:
        sys.exit("no context can be made")
    columns = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(loaded))
    batch, position = llama_cpp.llama_batch_init(BATCH, 0, 1), 0
    for line in sys.stdin:
        count, *target = line.split()
        logits = np.empty((int(count), columns), dtype=np.float32)
        start = time.perf_counter()
        for first in range(0, int(count), BATCH):
            stop = min(first + BATCH, int(count))
            _decode(llama_cpp, context, batch, ids[position + first : position + stop], position + first)
            found = llama_cpp.llama_get_logits(context)
            logits[first:stop] = np.ctypeslib.as_array(found, shape=(stop - first, columns))
        seconds = time.perf_counter() - start
        position += int(count)
        if target:
            np.save(target[0], logits)
        print(seconds, flush=True)


def _decode(llama_cpp: Any, context: Any, batch: Any, ids: np.ndarray, position: int) -> None:
    batch.n_tokens = len(ids)
    for index, token in enumerate(ids):
        batch.token[index], batch.pos[index] = int(token), position + index
        batch.n_seq_id[index], batch.seq_id[index][0], batch.logits[index] = 1, 0, 1
    if llama_cpp.llama_decode(context, batch):
        sys.exit("llama_decode failed")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
