"""Metrics shown by TensorBoard or W&B, through Accelerate's trackers. They write into the run folder."""

import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from everlong.errors import EverlongError


def check_trackers(names: Sequence[str]) -> None:
    """Raises where a tracker is not installed.

    Raises:
        EverlongError: with the command that installs it.
    """
    for name in names:
        found = find_spec(name)
        if found is None or found.origin is None:  # a mere folder of that name, which W&B itself makes, is no package
            raise EverlongError(f"--trackers {name} is not installed here: pip install everlong[trackers]")


class Trackers:
    """Those that a run was asked for, perhaps none; on the first process only, as Accelerate does it."""

    def __init__(self, accelerator: Accelerator, names: Sequence[str], phase: str, folder: Path, settings: Any):
        self._accelerator, self._names = accelerator, names
        if not names:
            return
        offline = {"mode": os.environ.get("WANDB_MODE", "offline"), "dir": str(folder), "config": settings}
        accelerator.init_trackers(phase, init_kwargs={"wandb": offline})
        started = {tracker.name for tracker in accelerator.trackers}
        missing = [name for name in names if name not in started]
        if missing and accelerator.is_main_process:
            raise EverlongError(
                f"--trackers {missing[0]} does not start here: see that its package works, or leave it out"
            )

    def log(self, line: Mapping[str, Any]) -> None:
        """Shows the numbers of a line of metrics at its step."""
        if self._names:
            numbers = {name: value for name, value in line.items() if isinstance(value, int | float)}
            self._accelerator.log(numbers, step=line["step"])

    def close(self) -> None:
        """Writes out what is left."""
        for tracker in self._accelerator.trackers:  # not end_training, which ends the processes' group, too
            tracker.finish()
