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
from safetensors import safe_open

from everlong.data.batch import Batch
from everlong.interventions._protocol import Intervention
from everlong.interventions.methods import create as create_intervention
from everlong.models.architectures import create
from everlong.models.language_model import LanguageModel
from everlong.progress import Progress
from everlong.records.training import Training
from everlong.runs import Run
from everlong.training.config import TrainingConfig
from everlong.training.loop import train
from everlong.training.processes import Processes

PHASE = "arm"
CLOCK = ("seconds", "tokens_per_second")
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
        rows: int = 3,
        length: int = 8,
        **fields: Any,
    ):
        self.data_order, self.batch_size, self.length = data_order, rows, length
        self._before, self._fields, self._peeked = before, fields, False

    def batch(self, step: int, rows: range | None = None) -> Batch:
        if self._before and self._peeked:
            self._before(step)
        self._peeked = True  # the first call is for the warm-up
        drawn = np.random.default_rng((17, step)).integers(0, 11, (self.batch_size, self.length + 1))
        tokens = torch.from_numpy(drawn)
        batch = Batch(
            tokens=tokens[:, :-1].contiguous(),
            targets=tokens[:, 1:].contiguous(),
            starts=torch.zeros(self.batch_size, dtype=torch.bool),
            rows=torch.arange(self.batch_size),
        )
        batch = replace(batch, **self._fields)
        return batch if rows is None else batch.part(slice(rows.start, rows.stop))


def tiny_model(seed: int = 0) -> LanguageModel:
    torch.manual_seed(seed)
    return create("mamba2", vocab_size=11, d_model=16, n_layer=2, d_state=8, headdim=8, backend="chunked")


class Arm:
    """One process's share of an arm: it can be run again on the same folder, as a resume is."""

    def __init__(
        self, folder: Path, method: str = "state_passing", *, model_seed: int = 0, model: Any = None, **settings: Any
    ):
        self.folder = folder
        self.model: LanguageModel = model or tiny_model(model_seed)
        self.intervention: Intervention = create_intervention(method, seed=4, **settings)
        self.console = Console(file=StringIO(), width=1000)
        self.did: dict[str, Any] = {}  # what the intervention says it did

    def train(self, source: Any = None, config: TrainingConfig = CONFIG) -> Training:
        with open_run(self.folder) as run:
            record = train(
                self.model,
                source or self.tokens(),
                self.intervention,
                config,
                run=run,
                phase=PHASE,
                progress=Progress(self.console),
                label="an arm",
            )
        self.did = record.intervention
        return record

    def tokens(self, before: Callable[[int], None] | None = None, **fields: Any) -> Tokens:
        """Batches that say they come in the order that the method needs, in rows as long as it needs."""
        wanted, length = self.intervention.data_order, self.intervention.row_length(8)
        return Tokens(before, data_order="shuffled" if wanted == "any" else wanted, length=length, **fields)

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
        return [{name: value for name, value in line.items() if name not in CLOCK} for line in lines]

    def checkpoints(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "checkpoints" / PHASE).glob("*"))


def open_run(folder: Path) -> Run:
    """A run folder, made where it is not there; by the first process, where there are several."""
    processes = Processes()
    processes.on_main(lambda: None if folder.exists() else Run.create(folder, "repair", {}).close())
    return Run.open(folder, crew=processes)


def checkpoint_of(folder: Path, step: int) -> dict[str, Any]:
    """Everything in a checkpoint but the clock, by "file/name"."""
    path = folder / "checkpoints" / PHASE / f"step-{step:06d}"
    values = {}
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as content:
            numbers = json.loads(content.metadata()["numbers"])
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 (no mapping)
        values.update({f"{file.stem}/{name}": value for name, value in {**numbers, **tensors}.items()})
    values.pop("history/seconds")
    return values


def assert_equal_checkpoints(one: dict[str, Any], other: dict[str, Any]) -> None:
    """To the bit."""
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(other[name])), name


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
