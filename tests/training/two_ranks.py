"""What test_two_ranks lets torchrun start: the arms of two processes, with what befalls them on the way.

    python -m torch.distributed.run --nproc_per_node 2 -m tests.training.two_ranks FOLDER killed|all

Each process leaves FOLDER/results-RANK.json: what was raised, by arm, and what it saw.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from everlong import launch
from everlong.data.batch import Batch
from everlong.data.orders import DATA_ORDERS
from everlong.errors import EverlongError
from everlong.training import checkpoint as checkpoint_module
from everlong.training import loop
from everlong.training.parallel import TrainedModel
from tests.data.test_shuffled_chunks import CORPUS
from tests.training.arms import CONFIG, Arm, Crash, checkpoint_of, tiny_model

ROWS = 4
TO_BE_RESUMED_ALONE = ("state_passing", "fitted_noise", "fsdp", "permuted", "correlated_noise")
MASK = torch.ones(ROWS, 8, dtype=torch.bool)
MASK[0, 1:] = False  # the ranks score unequal numbers of targets
STARTS = torch.tensor([False, True, False, False])
FIELDS: dict[str, dict[str, Any]] = {
    "zero": {},
    "state_passing": {},
    "fitted_noise": {},
    "tbtt": {"starts": STARTS},
    "masked": {"loss_mask": MASK},
    "accumulated": {},
    "fsdp": {},
    "permuted": {},
    "correlated_noise": {},
    "burn_in": {},
    "prefilled": {},
}
ROUGH: dict[str, dict[str, Any]] = {"mixed": {}, "mixed_fsdp": {}}  # products in bfloat16, whose sums differ by more
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("zero", "state_passing", "fitted_noise", "tbtt")},
    "permuted": ("state_passing", {"permuted": "heads"}),
    "correlated_noise": ("correlated_noise", {"rank": 2}),
    "burn_in": ("burn_in", {"longest_prefix": 6, "reset_probability": 0.3}),
    "prefilled": ("state_passing", {"prefill_steps": 3}),
}
MIXED = {"mixed_precision": True, "activation_checkpointing": True, "gradient_accumulation": 2}
SETTINGS = {
    "accumulated": {"gradient_accumulation": 2},
    "fsdp": {"parallel": "fsdp"},
    "prefilled": {"parallel": "fsdp", "gradient_accumulation": 2},
    "mixed": MIXED,
    "mixed_fsdp": {**MIXED, "parallel": "fsdp"},
}


def arm_of(folder: Path, name: str, **more: Any) -> tuple[Arm, dict[str, Any]]:
    """An arm and what ``train`` is given, but for what befalls it."""
    config = replace(CONFIG, batch_size=ROWS, **SETTINGS.get(name, {}))
    method, settings = METHODS.get(name, ("state_passing", {}))
    return Arm(folder, method, **settings, **more), {"config": config}


class Watched:
    """A data order of which is noted down what is read, in tokens that the model knows."""

    def __init__(self) -> None:
        self._order = DATA_ORDERS["shuffled"](CORPUS, length=4, batch_size=ROWS, seed=0)
        self.data_order, self.length, self.batch_size = "shuffled", 4, ROWS
        self.read: list[tuple[int, list[int]]] = []

    def batch(self, step: int, rows: range | None = None) -> Batch:
        batch = self._order.batch(step, rows)
        self.read.append((step, batch.tokens[:, 0].tolist()))
        return replace(batch, tokens=batch.tokens % 11, targets=batch.targets % 11)


def train(folder: Path, name: str, before: Callable[[int], None] | None = None, **settings: Any) -> Arm:
    """Trains an arm, or goes on with it."""
    arm, given = arm_of(folder, name)
    config = replace(given["config"], **settings)
    arm.train(arm.tokens(before, rows=ROWS, **FIELDS.get(name, {})), config)
    return arm


def at(step: int, what: Callable[[], None], *, rank: int | None = None) -> Callable[[int], None]:
    """Lets something happen at the beginning of a step, on one rank or all."""

    def befall(now: int) -> None:
        if now == step and rank in (None, launch.process_rank()):
            what()

    return befall


def crash() -> None:
    raise Crash


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def fill_the_disk() -> None:
    def full(tensors: dict, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    checkpoint_module.save_file = full


def carry(arm: Arm, value: float) -> None:
    """Sets what the first row of this process carries."""
    leaves = arm.intervention._slots._leaves  # type: ignore[attr-defined]
    for path, leaf in leaves.items():
        leaves[path] = leaf.index_fill(0, torch.tensor([0]), value) if "recurrent" in path else leaf


def poison(model: torch.nn.Module, *, once: bool = False) -> Callable[[], None]:
    met = []

    def infinite(module: torch.nn.Module, inputs: tuple, output: tuple) -> tuple:
        if once and met:
            return output
        met.append(module)
        return output[0] * float("inf"), output[1]

    return lambda: model.backbone.layers[1].register_forward_hook(infinite) and None  # type: ignore[union-attr]


def raised(work: Callable[[], object]) -> str:
    """What a person would be told, with the exit code."""
    try:
        work()
    except EverlongError as error:
        return f"{error.exit_code} {error}"
    return "nothing"


def all_arms(folder: Path) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    arms = {name: train(folder / name, name) for name in {**FIELDS, **ROUGH}}
    seen["summaries"] = {name: arms[name].did for name in FIELDS}
    chunks = Watched()
    Arm(folder / "chunks", "zero").train(chunks, replace(CONFIG, batch_size=ROWS, gradient_accumulation=2))
    seen["chunks"] = chunks.read[1:]  # the first is for the warm-up
    arms["killed"] = train(folder / "killed", "state_passing")

    kinds: list[bool] = []
    read = TrainedModel.__call__

    def watch(self: TrainedModel, *inputs: Any, **named: Any) -> Any:
        kinds.extend(isinstance(parameter, DTensor) for parameter in self.module.parameters())
        return read(self, *inputs, **named)

    TrainedModel.__call__ = watch  # type: ignore[method-assign]
    with suppress(Crash):
        train(folder / "fsdp-crashed", "fsdp", at(8, crash))
    TrainedModel.__call__ = read  # type: ignore[method-assign]
    seen["sharded"] = [len(kinds), all(kinds)]
    train(folder / "fsdp-crashed", "fsdp")
    owner, stored = arms["fsdp"].model, checkpoint_of(folder / "fsdp", 10)
    seen["plain"] = all(
        not isinstance(parameter, DTensor) and torch.equal(parameter, stored[f"model/{name}"])
        for name, parameter in owner.named_parameters()
    )

    for name in TO_BE_RESUMED_ALONE:
        with suppress(Crash):
            train(folder / f"{name}-to-be-resumed-alone", name, at(8, crash))

    interrupted = folder / "interrupted"
    seen["interrupted"] = raised(lambda: train(interrupted, "state_passing", at(6, terminate, rank=1)))
    train(interrupted, "state_passing")

    write = checkpoint_module.save_file
    seen["full"] = raised(lambda: train(folder / "full", "state_passing", at(7, fill_the_disk, rank=1)))
    checkpoint_module.save_file = write
    seen["full-left"] = sorted(path.name for path in (folder / "full" / "checkpoints" / "arm").iterdir())

    arm, given = arm_of(folder / "poisoned", "state_passing")
    source = arm.tokens(at(6, poison(arm.model), rank=1), rows=ROWS)
    seen["poisoned"] = raised(lambda: arm.train(source, given["config"]))
    arm, given = arm_of(folder / "skipped", "state_passing")
    record = arm.train(
        arm.tokens(at(6, poison(arm.model, once=True), rank=1), rows=ROWS),
        replace(given["config"], on_nonfinite="skip"),
    )
    seen["skipped"] = [record.skipped_steps, record.zeroed_rows]

    arm, given = arm_of(folder / "at-fault", "fsdp", reset_probability=0.0)
    source = arm.tokens(at(6, lambda: carry(arm, 3e38), rank=1), rows=ROWS)
    record = arm.train(source, replace(given["config"], on_nonfinite="skip", checkpoint_every=1))
    seen["at-fault"] = [record.skipped_steps, record.zeroed_rows]

    save = loop._Loop.save

    def signalled(self: loop._Loop, step: int) -> None:
        if step == CONFIG.steps and launch.process_rank() == 1:
            terminate()
        save(self, step)

    loop._Loop.save = signalled  # type: ignore[method-assign]
    seen["late"] = raised(lambda: train(folder / "late", "state_passing"))
    loop._Loop.save = save  # type: ignore[method-assign]

    odd = Arm(folder / "odd")
    seen["odd"] = raised(lambda: odd.train(odd.tokens(rows=3)))
    return seen


def main() -> None:
    folder, what = Path(sys.argv[1]), sys.argv[2]
    assert launch.process_count() == 2, "torchrun did not start two processes"
    torch.set_num_threads(1)
    if what == "killed":
        results: dict[str, Any] = {
            "killed": raised(lambda: train(folder / "killed", "state_passing", at(7, kill, rank=1)))
        }
    else:
        results = all_arms(folder)
    assert loop.Processes().count == torch.distributed.get_world_size() == 2
    results["parameters"] = len(list(tiny_model().parameters()))
    (folder / f"results-{what}-{launch.process_rank()}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main()
