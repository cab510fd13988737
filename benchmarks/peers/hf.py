"""transformers' Mamba and Mamba-2, trained as their users train them; the same model as ours, and proven to be.

The child (`python -m benchmarks.peers.hf ARCHITECTURE THREADS SETTINGS`) makes a step for each line on its standard
input, and prints the seconds.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks import shapes
from benchmarks.measure import NotAvailable
from benchmarks.peers.beside import Beside, fastest
from everlong.loading import save
from everlong.models.language_model import LanguageModel

CLOSE = 1e-3  # of logits of order one
WARMING = 3  # steps, before a fourth says how fast it is


def trainer(architecture: str, **settings: Any) -> Beside:
    """The training of transformers in a process beside this one, with its threads waiting as is best for it here.

    Args:
        architecture: mamba1 or mamba2.
        settings: of its configuration, beside the sizes: chunk_size, use_mambapy.
    """
    arguments = (architecture, str(torch.get_num_threads()), json.dumps(settings))
    return fastest(
        lambda wait: Beside("transformers", __name__, arguments, wait),
        lambda peer: [peer.ask("step") for _ in range(WARMING + 1)][-1],
    )


def training_step(architecture: str, **settings: Any) -> Callable[[], None]:
    """A training step of transformers' model of an architecture: forward, loss, backward, clip, AdamW.

    Args:
        architecture: mamba1 or mamba2.
        settings: of its configuration, beside the sizes: chunk_size, use_mambapy.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if settings.get("use_mambapy") and not transformers.utils.import_utils.is_mambapy_available():
        raise NotAvailable("mambapy is not installed (pip install -r benchmarks/requirements.txt)")
    kind = {"mamba1": transformers.MambaForCausalLM, "mamba2": transformers.Mamba2ForCausalLM}[architecture]
    ours = shapes.model(shapes.TINY[architecture], perturbed=True)
    with tempfile.TemporaryDirectory() as folder:
        save(ours, Path(folder) / "model", format="transformers", context=shapes.LENGTH)
        theirs: Any = kind.from_pretrained(Path(folder) / "model", **settings)
    theirs.train()
    for name, value in settings.items():
        assert getattr(theirs.config, name) == value
    _prove_equal(theirs, ours)
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    both = shapes.tokens(shapes.ROWS, shapes.LENGTH + 1)
    inputs, targets = both[:, :-1].contiguous(), both[:, 1:].flatten()

    def step() -> None:
        optimizer.zero_grad()
        logits = theirs(inputs, use_cache=False).logits
        F.cross_entropy(logits.flatten(0, 1), targets).backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()

    return step


@torch.no_grad()
def _prove_equal(theirs: Any, ours: LanguageModel) -> None:
    some = shapes.tokens(2, 300)
    wanted, found = ours(some).logits, theirs(some, use_cache=False).logits
    error = (wanted - found).abs().max() / wanted.abs().max()
    if error > CLOSE:
        raise NotAvailable(f"transformers' logits are not ours: they differ by {error:.1e} of the largest")


def main(architecture: str, threads: int, settings: dict[str, Any]) -> None:
    """The child."""
    torch.set_num_threads(threads)
    try:
        step = training_step(architecture, **settings)
    except NotAvailable as reason:
        sys.exit(str(reason))
    for _ in sys.stdin:
        start = time.perf_counter()
        step()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
