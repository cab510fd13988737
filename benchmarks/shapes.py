"""The tiny shape that everything is measured at: 256 wide, 4 layers, 256 token ids; its models, tokens and steps."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from everlong.data.batch import Batch
from everlong.interventions.methods import create as create_method
from everlong.models.architectures import ARCHITECTURES
from everlong.models.config import GLAConfig, LanguageModelConfig, Mamba1Config, Mamba2Config, RWKV6Config
from everlong.models.language_model import LanguageModel
from everlong.ops.allocator import keep_freed_memory
from everlong.progress import Progress
from everlong.runs import Run
from everlong.training.config import TrainingConfig
from everlong.training.loop import _Loop

ROWS, LENGTH = 4, 512  # of a training batch
TINY: dict[str, LanguageModelConfig] = {
    "gla": GLAConfig(vocab_size=256, d_model=256, n_layer=4, num_heads=4, expand_k=1.0),
    "mamba1": Mamba1Config(vocab_size=256, d_model=256, n_layer=4, d_state=16),
    "mamba2": Mamba2Config(vocab_size=256, d_model=256, n_layer=4, d_state=128, headdim=64),
    "rwkv6": RWKV6Config(vocab_size=256, d_model=256, n_layer=4, headdim=64),
}
"""Mamba-1: 512 channels x 16; Mamba-2: 8 heads x 128 x 64 in one group; GLA and RWKV-6: 4 heads x 64 x 64."""


def wide(architecture: str) -> LanguageModelConfig:
    """The same heads and vocabulary, 768 wide; two layers, which cost what any two cost."""
    heads: dict[str, Any] = {"num_heads": 12} if architecture == "gla" else {}
    return replace(TINY[architecture], d_model=768, n_layer=2, **heads)


def model(config: LanguageModelConfig, *, backend: str = "auto", perturbed: bool = False) -> LanguageModel:
    """A model with random weights, the same each time; perturbed: none of them zero, so that each tells."""
    torch.manual_seed(0)
    made = ARCHITECTURES[config.architecture](config, backend=backend)
    if perturbed:
        with torch.no_grad():
            for parameter in made.parameters():
                parameter += 0.05 * torch.randn_like(parameter)
    return made


def tokens(rows: int, length: int) -> Tensor:
    """Random token ids [rows, length], the same each time."""
    return torch.randint(256, (rows, length), generator=torch.Generator().manual_seed(1))


class TrainingStep:
    """The whole step of the training loop itself: state, model, loss, backward, clip, optimizer, bookkeeping.

    Args:
        config: of the model.
        rows: of the batch, the same at every step.
        length: tokens a row.
        method: the intervention.
        training: settings of the loop.
    """

    def __init__(
        self,
        config: LanguageModelConfig,
        *,
        rows: int = ROWS,
        length: int = LENGTH,
        method: str = "zero",
        **training: Any,
    ):
        self._folder = tempfile.TemporaryDirectory(prefix="everlong-benchmark-")
        run = Run.create(Path(self._folder.name) / "run", "benchmark", {})
        settings = TrainingConfig(steps=100_000, batch_size=rows, **training)
        intervention = create_method(method, seed=0)
        quiet = Progress(Console(quiet=True))
        source = _OneBatch(rows, length)
        self._loop = _Loop(model(config), source, intervention, settings, run, "benchmark", quiet, {})
        self._loop.model.train()
        self._steps = 0
        self.losses: list[float] = []
        """Of the steps so far."""
        keep_freed_memory()  # as the loop does before its first step, for all of the process: for the peers too

    def __call__(self) -> None:
        """One step more."""
        self.losses.append(self._loop.step(self._steps)["loss"])
        self._steps += 1


class _OneBatch:
    """The same batch at every step."""

    data_order = "shuffled"

    def __init__(self, rows: int, length: int):
        self.batch_size, self.length = rows, length
        both = tokens(rows, length + 1)
        self._batch = Batch(
            tokens=both[:, :-1].contiguous(),
            targets=both[:, 1:].contiguous(),
            starts=torch.zeros(rows, dtype=torch.bool),
            rows=torch.arange(rows),
        )

    def batch(self, step: int, rows: range | None = None) -> Batch:
        return self._batch if rows is None else self._batch.part(slice(rows.start, rows.stop))
