"""Tiny runs that a signal meets at a given moment, and what is compared between two runs; for ``crash_matrix``."""

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from safetensors import safe_open

from everlong.data.batch import Batch
from everlong.errors import EverlongError
from everlong.interventions.methods import create as create_intervention
from everlong.models.architectures import create
from everlong.progress import Progress
from everlong.runs import Run
from everlong.training import checkpoint as checkpoints
from everlong.training.config import TrainingConfig
from everlong.training.loop import train
from everlong.training.processes import Processes

PHASE = "arm"
ROWS, LENGTH, VOCABULARY = 4, 8, 11
CONFIG = TrainingConfig(steps=12, batch_size=ROWS, learning_rate=1e-2, checkpoint_every=4)
CLOCK = ("seconds", "tokens_per_second")


@dataclass(frozen=True, kw_only=True)
class Crash:
    """A signal at a moment of a step, to one of the processes."""

    moment: str
    number: signal.Signals
    step: int
    rank: int


class RandomTokens:
    """Batches that are functions of the step alone."""

    data_order, length, batch_size = "shuffled", LENGTH, ROWS

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """The batch of a step, or only some of its rows."""
        drawn = np.random.default_rng((17, step)).integers(0, VOCABULARY, (ROWS, LENGTH + 1))
        tokens = torch.from_numpy(drawn)
        batch = Batch(
            tokens=tokens[:, :-1].contiguous(),
            targets=tokens[:, 1:].contiguous(),
            starts=torch.zeros(ROWS, dtype=torch.bool),
            rows=torch.arange(ROWS),
        )
        return batch if rows is None else batch.part(slice(rows.start, rows.stop))


def run_processes(folder: Path, count: int, crash: Crash | None, seconds: float | None = None) -> list[int]:
    """Trains in ``folder`` in processes of their own, which go on from what is there; returns their exit codes.

    They are started as torchrun starts them, but forked, which spares seconds for every trial.

    Args:
        folder: of the run.
        count: of processes.
        crash: what befalls them.
        seconds: after which the signal is sent from outside; None: it is sent at the crash's moment, from inside.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    sys.stdout.flush()
    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            _work(folder, count, rank, port, None if seconds is not None else crash)
        children.append(child)
    if seconds is not None and crash is not None:
        time.sleep(seconds)
        os.kill(children[crash.rank], crash.number)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def _work(folder: Path, count: int, rank: int, port: int, crash: Crash | None) -> None:
    """The life of a child."""
    code = 1
    try:
        if count > 1:
            names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}
            os.environ.update({name: str(value) for name, value in {**names, "MASTER_PORT": port}.items()})
            os.environ["MASTER_ADDR"] = "127.0.0.1"
        torch.set_num_threads(1)
        if crash is not None and crash.rank == rank:
            MOMENTS[crash.moment](crash.step, lambda: os.kill(os.getpid(), crash.number))
        _train(folder)
        code = 0
    except EverlongError as error:
        code = error.exit_code
    finally:
        os._exit(code)


def _train(folder: Path) -> None:
    processes = Processes()
    processes.on_main(lambda: None if folder.exists() else Run.create(folder, "train", {}).close())
    torch.manual_seed(0)
    model = create("mamba2", vocab_size=VOCABULARY, d_model=16, n_layer=2, d_state=8, headdim=8, backend="chunked")
    quiet = Progress(Console(quiet=True))
    with Run.open(folder, crew=processes) as run:
        intervention = create_intervention("state_passing", seed=4)
        train(model, RandomTokens(), intervention, CONFIG, run=run, phase=PHASE, progress=quiet, label="a trial")


def _in_a_step(step: int, strike: Callable[[], None]) -> None:
    """Gradients are there, weights not yet changed."""
    _before(torch.optim.AdamW, "step", strike, skip=step)


def _half_a_line(step: int, strike: Callable[[], None]) -> None:
    """A line of metrics is cut in its middle."""
    log = Run.log

    def cut(self: Run, line: dict[str, Any]) -> None:
        if line["step"] == step and self.writes:
            with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line)[:20])
                file.flush()
                strike()  # a signal that lets the process live finds the line torn, too
                file.write("\n")
        log(self, line)

    Run.log = cut  # type: ignore[method-assign]


def _half_a_file(step: int, strike: Callable[[], None]) -> None:
    """A file of a checkpoint is cut in its middle."""
    save, struck = checkpoints.save_file, []

    def cut(tensors: dict[str, torch.Tensor], path: Path, **metadata: Any) -> None:
        save(tensors, path, **metadata)
        if f"step-{_next_checkpoint(step):06d}" in str(path) and not struck:
            struck.append(path)
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2])
            strike()
            path.write_bytes(content)

    checkpoints.save_file = cut


def _before_the_rename(step: int, strike: Callable[[], None]) -> None:
    """Every file of a checkpoint is there, under the temporary name."""
    _before(checkpoints, "_write_index", strike, skip=_next_checkpoint(step) // CONFIG.checkpoint_every - 1)


def _after_the_rename(step: int, strike: Callable[[], None]) -> None:
    """A checkpoint has its name; older ones are not yet removed, nothing of the next step is logged."""
    _before(checkpoints.Checkpoints, "_prune", strike, skip=_next_checkpoint(step) // CONFIG.checkpoint_every - 1)


MOMENTS: dict[str, Callable[[int, Callable[[], None]], None]] = {
    "in a step, before the weights change": _in_a_step,
    "in the middle of a line of metrics": _half_a_line,
    "in the middle of a checkpoint's file": _half_a_file,
    "before a checkpoint gets its name": _before_the_rename,
    "after it got its name": _after_the_rename,
}
ONLY_ON_MAIN = ("in the middle of a line of metrics", "before a checkpoint gets its name", "after it got its name")


def _before(owner: Any, name: str, strike: Callable[[], None], *, skip: int) -> None:
    """Strikes at the beginning of a function's call number ``skip``, counted from 0."""
    function, calls = getattr(owner, name), []

    def struck(*inputs: Any, **named: Any) -> Any:
        if len(calls) == skip:
            strike()
        calls.append(1)
        return function(*inputs, **named)

    setattr(owner, name, struck)


def _next_checkpoint(step: int) -> int:
    return (step // CONFIG.checkpoint_every + 1) * CONFIG.checkpoint_every


def steps_logged(folder: Path) -> int:
    """Whole lines of metrics."""
    return len(_lines(folder))


def checkpoint_left(folder: Path) -> int:
    """The step of the newest checkpoint that is whole; 0: there is none."""
    found = checkpoints.Checkpoints(folder, PHASE, lambda line: None).newest()
    return found.step if found else 0


def outcome(folder: Path) -> dict[str, Any]:
    """Weights, optimizer, carried states, history and metrics of a finished run, but for the clock."""
    values: dict[str, Any] = {"metrics": _lines(folder)}
    path = folder / "checkpoints" / PHASE / f"step-{CONFIG.steps:06d}"
    for file in sorted(path.glob("*.safetensors")):
        with safe_open(file, framework="pt") as content:
            values[f"{file.stem} numbers"] = json.loads(content.metadata()["numbers"])
            values.update({f"{file.stem}/{name}": content.get_tensor(name) for name in content.keys()})  # noqa: SIM118
    values["history numbers"].pop("seconds")
    return values


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two outcomes are equal to the bit."""
    return one.keys() == other.keys() and all(
        torch.equal(value, other[name]) if isinstance(value, torch.Tensor) else value == other[name]
        for name, value in one.items()
    )


def _lines(folder: Path) -> list[dict[str, Any]]:
    path, lines = folder / "metrics.jsonl", []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        with suppress(ValueError):
            lines.append({name: value for name, value in json.loads(line).items() if name not in CLOCK})
    return lines
