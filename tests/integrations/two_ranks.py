"""What test_trainer_two_ranks lets torchrun start: trainings of two processes, each with half of the rows.

python -m torch.distributed.run --nproc_per_node 2 -m tests.integrations.two_ranks FOLDER
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from tests.integrations.trainers import ROWS, model_of, other_weights, shuffled, trainer_of

HALVES: dict[str, dict[str, Any]] = {
    "state_passing": {},
    "fitted_noise": {"method": "fitted_noise"},
    "tbtt": {"method": "tbtt"},
    "permuted": {"settings": {"permuted": "elements"}},
    "masked": {"data": shuffled(masked=True)},
    "in_parts": {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 1},
}
"""By name: a training of two processes, which one process with all rows in one part has to equal."""
RESUMED = ("state_passing", "fitted_noise", "tbtt")


def train(folder: Path, name: str, processes: int, **more: Any) -> dict[str, Any]:
    """Trains as one of some processes; returns what the process saw."""
    given = {"per_device_train_batch_size": ROWS // 2, **HALVES[name]}
    if processes == 1:
        given.pop("per_device_train_batch_size")
        given.pop("gradient_accumulation_steps", None)
    start = more.pop("start", None)
    logging = {"logging_strategy": "steps", "logging_steps": 1}  # what is logged is the mean over the processes
    trainer = trainer_of(folder / name, **given, **logging, **more)
    assert trainer.args.world_size == trainer.accelerator.num_processes == processes, "processes did not come together"
    trainer.train(resume_from_checkpoint=start)
    wrapped = type(trainer.model_wrapped).__name__
    return {"wrapped": wrapped, "losses": [line["loss"] for line in trainer.state.log_history if "loss" in line]}


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    seen = {name: train(folder / "ranks", name, 2) for name in HALVES}
    for name in RESUMED:
        start = str(folder / "ranks" / name / "checkpoint-3")
        train(folder / "resumed", name, 2, start=start, model=other_weights(model_of()))
    assert distributed.get_world_size() == 2
    (folder / f"seen-{distributed.get_rank()}.json").write_text(json.dumps(seen))
    distributed.barrier()
    # All that is compared is written. Python 3.11 aborts where one of gloo's threads wants the interpreter while it is
    # taken down (pytorch 179291), which leaving the group does not prevent where a trainer still holds it.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
