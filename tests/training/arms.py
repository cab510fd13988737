"""A tiny arm of training: model, source and settings, and what is compared between two runs of it."""

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

from everlong.data.batch import Batch
from everlong.interventions._protocol import Intervention
from everlong.interventions.methods import create as create_intervention
from everlong.models.architectures import create
from everlong.models.language_model import LanguageModel
from everlong.progress import Progress
from everlong.records import Training
from everlong.runs import Run
from everlong.training.config import TrainingConfig
from everlong.training.loop import train

PHASE = "arm"
CONFIG = TrainingConfig(steps=10, batch_size=3, learning_rate=1e-2, checkpoint_every=5)


class Crash(Exception):
    """What the test lets happen."""


class Tokens:
    """Random tokens, a function of the step alone; ``before`` is called with each step of training."""

    def __init__(
        self,
        before: Callable[[int], None] | None = None,
        *,
        data_order: str = "shuffled",
        length: int = 8,
        **fields: Any,
    ):
        self.data_order, self.length = data_order, length
        self._before, self._fields, self._peeked = before, fields, False

    def batch(self, step: int) -> Batch:
        if self._before and self._peeked:
            self._before(step)
        self._peeked = True  # the first call asks how long a row is
        tokens = torch.from_numpy(np.random.default_rng((17, step)).integers(0, 11, (3, self.length + 1)))
        batch = Batch(
            tokens=tokens[:, :-1].contiguous(),
            targets=tokens[:, 1:].contiguous(),
            starts=torch.zeros(3, dtype=torch.bool),
            rows=torch.arange(3),
        )
        return replace(batch, **self._fields)


def tiny_model(seed: int = 0) -> LanguageModel:
    torch.manual_seed(seed)
    return create("mamba2", vocab_size=11, d_model=16, n_layer=2, d_state=8, headdim=8, backend="chunked")


class Arm:
    """One process's share of an arm: it can be run again on the same folder, as a resume is."""

    def __init__(self, folder: Path, method: str = "state_passing", *, model_seed: int = 0, **settings: Any):
        self.folder = folder
        self.model = tiny_model(model_seed)
        self.intervention: Intervention = create_intervention(method, seed=4, **settings)
        self.console = Console(file=StringIO(), width=1000)

    def train(self, source: Any = None, config: TrainingConfig = CONFIG) -> Training:
        run = Run.open(self.folder) if self.folder.exists() else Run.create(self.folder, "repair", {})
        with run:
            return train(
                self.model,
                source or self.tokens(),
                self.intervention,
                config,
                run=run,
                phase=PHASE,
                progress=Progress(self.console),
                label="an arm",
            )

    def tokens(self, before: Callable[[int], None] | None = None) -> Tokens:
        """Batches that say they come in the order that the method needs, in rows as long as it needs."""
        wanted, length = self.intervention.data_order, self.intervention.row_length(8)
        return Tokens(before, data_order="shuffled" if wanted == "any" else wanted, length=length)

    def crash_before(self, step: int, config: TrainingConfig = CONFIG) -> None:
        """Trains until something goes wrong at the beginning of a step."""

        def crash(now: int) -> None:
            if now == step:
                raise Crash

        with suppress(Crash):
            self.train(self.tokens(crash), config)

    @property
    def said(self) -> str:
        return self.console.file.getvalue()  # type: ignore[attr-defined]

    def lines(self) -> list[dict[str, Any]]:
        """The metrics, but for the clock."""
        lines = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "checkpoints" / PHASE).glob("*"))


def assert_same_to_the_bit(one: Arm, other: Arm) -> None:
    """Weights, carried states and metrics of two arms are equal."""
    ours, theirs = dict(one.model.named_parameters()), dict(other.model.named_parameters())
    assert ours.keys() == theirs.keys()
    for name, parameter in ours.items():
        assert torch.equal(parameter, theirs[name]), name
    mine, yours = one.intervention.state_dict(), other.intervention.state_dict()
    assert mine.keys() == yours.keys()
    for name, value in mine.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(yours[name])), name
    assert one.lines() == other.lines()


def without_clock(record: Training) -> Training:
    return replace(record, seconds=0.0)
