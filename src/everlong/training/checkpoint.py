"""Files that training resumes from: safetensors and JSON, never pickle; complete, or taken for absent.

checkpoints/PHASE/step-000100/     after 100 steps
    checkpoint.json                what it is, its numbers, and the SHA-256 of each other file
    PART.safetensors               the tensors of a part: model, optimizer, intervention, history
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from everlong.errors import EverlongError, RunStopped

FORMAT = "everlong-training-1"
KEPT = 2

Part = Mapping[str, Tensor | int | float | str]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it was read back.

    Attributes:
        path: its folder.
        step: steps done.
        settings: those of the run that wrote it.
        parts: values by name, by part.
    """

    path: Path
    step: int
    settings: dict[str, Any]
    parts: dict[str, dict[str, Any]]


class Checkpoints:
    """The checkpoints of one phase of a run.

    Args:
        run: the run folder.
        phase: the phase, which names their folder.
        say: is told of each checkpoint that cannot be used, in a line.
    """

    def __init__(self, run: Path, phase: str, say: Callable[[str], None]):
        self.folder = run / "checkpoints" / phase
        self.last: Path | None = None
        """The newest complete one that this process wrote or read."""
        self._say = say

    def save(self, step: int, parts: Mapping[str, Part], settings: Mapping[str, Any]) -> None:
        """Writes a checkpoint that appears whole or not at all, then removes those older than the one before it.

        Raises:
            RunStopped: it cannot be written (the disk is full, say); the ones before it are as they were.
        """
        target = self.folder / _name(step)
        temporary = self.folder / f".{target.name}"
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            _write(temporary, step, parts, settings)
            shutil.rmtree(target, ignore_errors=True)  # a torn one of the same step
            temporary.rename(target)
            _flush(self.folder)
        except (OSError, SafetensorError) as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise RunStopped(
                f"the checkpoint of step {step} cannot be written to {self.folder} ({error}); {self.last_good()}"
            ) from error
        self.last = target
        self._prune(step)

    def newest(self) -> Checkpoint | None:
        """The newest complete checkpoint, or None; each one that is newer but not complete is named to ``say``."""
        for step in sorted(self._steps(), reverse=True):
            path = self.folder / _name(step)
            try:
                checkpoint = _read(path)
            except (OSError, ValueError, LookupError, TypeError, SafetensorError) as error:
                self._say(f"{path} is torn and passed over: {error}")
                continue
            self.last = path
            return checkpoint
        return None

    def last_good(self) -> str:
        """Where to find the last good checkpoint, in words."""
        return f"the last good checkpoint is {self.last}" if self.last else "there is no earlier checkpoint"

    def _steps(self) -> list[int]:
        return [int(path.name.removeprefix("step-")) for path in self.folder.glob("step-[0-9]*")]

    def _prune(self, newest: int) -> None:
        """Later steps than the newest are torn ones that a resume passed over."""
        steps = sorted(self._steps(), reverse=True)
        kept = [step for step in steps if step <= newest][:KEPT]
        for step in steps:
            if step not in kept:
                shutil.rmtree(self.folder / _name(step), ignore_errors=True)


def discard(run: Path, phase: str) -> None:
    """Removes the checkpoints of a phase that is finished."""
    shutil.rmtree(run / "checkpoints" / phase, ignore_errors=True)


def _name(step: int) -> str:
    return f"step-{step:06d}"


def _write(folder: Path, step: int, parts: Mapping[str, Part], settings: Mapping[str, Any]) -> None:
    numbers: dict[str, dict[str, Any]] = {}
    files: dict[str, str] = {}
    for part, values in parts.items():
        numbers[part] = {name: value for name, value in values.items() if not isinstance(value, Tensor)}
        tensors = {name: value.detach().contiguous() for name, value in values.items() if isinstance(value, Tensor)}
        path = folder / f"{part}.safetensors"
        save_file(tensors, path)
        _flush(path)
        files[path.name] = _digest(path)
    content = {"format": FORMAT, "step": step, "settings": settings, "values": numbers, "sha256": files}
    path = folder / "checkpoint.json"
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    _flush(path)
    _flush(folder)


def _read(folder: Path) -> Checkpoint:
    content = json.loads((folder / "checkpoint.json").read_text(encoding="utf-8"))
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}, expected {FORMAT!r}")
    for name, digest in content["sha256"].items():
        if _digest(folder / name) != digest:
            raise ValueError(f"{name} has changed since it was written (SHA-256)")
    parts: dict[str, dict[str, Any]] = {}
    for part, numbers in content["values"].items():
        with safe_open(folder / f"{part}.safetensors", framework="pt") as file:
            # cloned: kernels may add up in another order where memory is aligned otherwise
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (no mapping)
        parts[part] = {**numbers, **tensors}
    return Checkpoint(folder, content["step"], content["settings"], parts)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _flush(path: Path) -> None:
    """Waits until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_settings(checkpoint: Checkpoint, settings: Mapping[str, Any]) -> None:
    """Raises where a run would go on with other settings than it began with, and names them.

    Raises:
        EverlongError: some setting differs.
    """
    before = checkpoint.settings
    changed = [name for name in {**before, **settings} if before.get(name) != settings.get(name)]
    if changed:
        differences = "; ".join(f"{name} {settings.get(name)}, was {before.get(name)}" for name in changed)
        raise EverlongError(
            f"{checkpoint.path} was written with other settings ({differences}): go on with those, or start a new run"
        )
