"""transformers' Mamba and Mamba-2, trained as their users train them; the same model as ours, and proven to be."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks import shapes
from benchmarks.measure import NotAvailable
from everlong.loading import save
from everlong.models.language_model import LanguageModel

CLOSE = 1e-3  # of logits of order one


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
