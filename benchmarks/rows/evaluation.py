"""Long evaluation, all logits, against llama.cpp: 64k tokens of one row, read on slice by slice in turns."""

import tempfile
from pathlib import Path

import torch
from torch import Tensor

from benchmarks import shapes
from benchmarks.measure import Measurement, NotAvailable, Work, compare
from benchmarks.peers import gguf_files
from benchmarks.peers.beside import fastest
from benchmarks.peers.llama_cpp import LlamaCpp
from benchmarks.settings import Settings
from everlong.models.language_model import LanguageModel
from everlong.reading import stream
from everlong.state import RecurrentState

TOKENS, CHECKED = 65_536, 512
CLOSE = 1e-3  # of the largest logit


@torch.no_grad()
def against_llama_cpp(settings: Settings, architecture: str) -> Measurement:
    """How many times faster than llama.cpp, built for this processor, float32, as many threads."""
    model = shapes.model(shapes.TINY[architecture], perturbed=True).eval()
    slices = settings.repeats + 2  # two are kept out of the figure, see in_turns
    size = TOKENS // slices
    row = shapes.tokens(1, CHECKED + size * slices)
    with tempfile.TemporaryDirectory(prefix="everlong-benchmark-") as folder:
        gguf_files.write(model, Path(folder) / "model.gguf")
        peer, state = _proven(model, Path(folder) / "model.gguf", row)
        try:
            works: dict[str, Work] = {
                "ours": _reader(model, row[:, CHECKED:], state, size),
                "llama.cpp": lambda: peer.read(size),
            }
            note = (
                f"{slices} slices of {size} tokens, the state carried on; logits equal within {CLOSE:g} of the largest"
            )
            return compare(works, settings.repeats, over="llama.cpp", under="ours", note=note)
        finally:
            peer.close()


def _reader(model: LanguageModel, row: Tensor, state: RecurrentState, size: int) -> Work:
    """Reads the next ``size`` tokens each time."""
    position = 0

    def work() -> None:
        nonlocal position, state
        for output in stream(model, row[:, position : position + size], state):
            state = output.state
        position += size

    return work


def _proven(model: LanguageModel, path: Path, row: Tensor) -> tuple[LlamaCpp, RecurrentState]:
    """llama.cpp, after it has shown our logits for the first tokens.

    Returns:
        The peer, and our own state after the same tokens.
    """
    output = model(row[:, :CHECKED])

    def first(peer: LlamaCpp) -> float:
        found, seconds = peer.logits(CHECKED)
        error = (output.logits[0] - torch.from_numpy(found)).abs().max() / output.logits.abs().max()
        if not error <= CLOSE:
            raise NotAvailable(f"llama.cpp's logits are not ours: they differ by {error:.1e} of the largest")
        return seconds

    threads = torch.get_num_threads()
    return fastest(lambda wait: LlamaCpp(path, row[0].numpy(), threads, wait), first), output.state
