"""Files that training resumes from: safetensors and JSON, never pickle; complete, or taken for absent.

checkpoints/PHASE/step-000100/     after 100 steps
    checkpoint.json                step, settings and processes, the SHA-256 of each other file, and its own
    PART.safetensors               a part: its tensors, and its numbers in the metadata; model, optimizer, history, and
                                   intervention-RANK of each process: what the rows of that process carry

Several processes write together, into one folder: on several machines it must lie where all of them see it.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from everlong.disk import flush, make_folder, rename
from everlong.errors import EverlongError, RunStopped
from everlong.training.config import CHANGEABLE
from everlong.training.processes import Processes

FORMAT = "everlong-training-2"
KEPT = 2
TORN = (FileNotFoundError, ValueError, LookupError, TypeError, SafetensorError)

Part = Mapping[str, Tensor | int | float | str]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it was read back.

    Attributes:
        path: its folder.
        step: steps done.
        settings: those of the run that wrote it.
        processes: how many wrote it.
        parts: values by name, by part.
        carried: what the rows of this process carried; where another number wrote it, those of each of them.
    """

    path: Path
    step: int
    settings: dict[str, Any]
    processes: int
    parts: dict[str, dict[str, Any]]
    carried: list[dict[str, Any]]


class Checkpoints:
    """The checkpoints of one phase of a run.

    Args:
        run: the run folder.
        phase: the phase, which names their folder.
        say: is told of each checkpoint that cannot be used, in a line.
        processes: those that call ``save`` and ``newest`` together.
    """

    def __init__(self, run: Path, phase: str, say: Callable[[str], None], processes: Processes | None = None):
        self.folder = run / "checkpoints" / phase
        self.last: Path | None = None
        """The newest complete one that this process wrote or read."""
        self._say, self._processes = say, processes or Processes()

    def save(self, step: int, parts: Mapping[str, Part], own: Part, settings: Mapping[str, Any]) -> None:
        """Writes a checkpoint that appears whole or not at all, then removes those older than the one before it.

        Args:
            step: steps done.
            parts: what all processes have alike; the first one's are written.
            own: what this process's rows carry.
            settings: those of the run.

        Raises:
            RunStopped: some process cannot write (the disk is full, say); the ones before it are as they were.
        """
        processes, target = self._processes, self.folder / _name(step)
        temporary = self.folder / f".{target.name}"
        written: dict[str, str] = {}

        def begin() -> None:
            shutil.rmtree(temporary, ignore_errors=True)
            make_folder(temporary)

        def write() -> None:
            mine = {_own_part(processes.rank): own, **(parts if processes.is_main else {})}
            written.update({part: _write_part(temporary, part, values) for part, values in mine.items()})

        def end() -> None:
            files = {f"{part}.safetensors": digest for part, digest in {**written, **theirs}.items()}
            content = {"format": FORMAT, "step": step, "settings": settings, "processes": processes.count}
            _write_index(temporary, {**content, "sha256": files})
            shutil.rmtree(target, ignore_errors=True)  # a torn one of the same step
            rename(temporary, target)

        try:
            processes.on_main(lambda: self._writing(step, begin))
            processes.together(lambda: self._writing(step, write))
            digests = processes.gather(torch.tensor([list(bytes.fromhex(written[_own_part(processes.rank)]))]))
            theirs = {_own_part(rank): bytes(digest).hex() for rank, digest in enumerate(digests.tolist())}
            processes.on_main(lambda: self._writing(step, end))
        except RunStopped:
            if processes.is_main:
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        self.last = target
        if processes.is_main:
            self._prune(step)

    def newest(self) -> Checkpoint | None:
        """The newest complete checkpoint, or None; each one that is newer but not complete is named to ``say``.

        Raises:
            RunStopped: there are checkpoints, but none is complete, or one cannot be read from the disk.
        """
        processes = self._processes
        found = processes.share(processes.together(self._find if processes.is_main else str))
        if not found:
            return None
        self.last = self.folder / found

        def read() -> Checkpoint:
            try:
                return _read(self.folder / found, processes)
            except (OSError, *TORN) as error:  # the first process could read it
                raise RunStopped(f"{self.last} cannot be read by process {processes.rank}: {error}") from error

        return processes.together(read)

    def last_good(self) -> str:
        """Where to find the last good checkpoint, in words."""
        return f"the last good checkpoint is {self.last}" if self.last else "there is no earlier checkpoint"

    def _find(self) -> str:
        """The name of the newest complete one, or nothing where there is none at all."""
        steps = sorted(self._steps(), reverse=True)
        for step in steps:
            path = self.folder / _name(step)
            try:
                _check_files(path, _read_index(path))
            except TORN as error:
                self._say(f"{path} is torn and passed over: {error}")
                continue
            except OSError as error:
                raise RunStopped(f"{path} cannot be read from the disk ({error}); nothing was changed") from error
            return path.name
        if steps:
            raise RunStopped(
                f"all checkpoints in {self.folder} are torn ({', '.join(_name(step) for step in steps)}), and nothing "
                "was changed: bring one back, or remove that folder, and the training begins anew from step 0"
            )
        return ""

    def _writing(self, step: int, work: Callable[[], None]) -> None:
        try:
            work()
        except (OSError, SafetensorError) as error:
            raise RunStopped(
                f"the checkpoint of step {step} cannot be written to {self.folder} ({error}); {self.last_good()}"
            ) from error

    def _steps(self) -> list[int]:
        return [int(path.name.removeprefix("step-")) for path in self.folder.glob("step-[0-9]*")]

    def _prune(self, newest: int) -> None:
        """Later steps than the newest are torn ones that a resume passed over; hidden ones were cut by a kill."""
        steps = sorted(self._steps(), reverse=True)
        kept = [step for step in steps if step <= newest][:KEPT]
        torn = [self.folder / _name(step) for step in steps if step not in kept]
        for path in (*torn, *self.folder.glob(".step-*")):
            shutil.rmtree(path, ignore_errors=True)


def discard(run: Path, phase: str) -> None:
    """Removes the checkpoints of a phase that is finished."""
    shutil.rmtree(run / "checkpoints" / phase, ignore_errors=True)


def _name(step: int) -> str:
    return f"step-{step:06d}"


def _own_part(rank: int) -> str:
    return f"intervention-{rank:05d}"


def _write_part(folder: Path, part: str, values: Part) -> str:
    """Writes a part's file; returns its SHA-256."""
    numbers = {name: value for name, value in values.items() if not isinstance(value, Tensor)}
    tensors = {name: value.detach().contiguous() for name, value in values.items() if isinstance(value, Tensor)}
    path = folder / f"{part}.safetensors"
    save_file(tensors, path, metadata={"numbers": json.dumps(numbers)})
    flush(path)
    return _digest(path)


def _write_index(folder: Path, content: Mapping[str, Any]) -> None:
    path = folder / "checkpoint.json"
    path.write_text(json.dumps({**content, "own_sha256": _digest_of(content)}, indent=1) + "\n", encoding="utf-8")
    flush(path)
    flush(folder)


def _read_index(folder: Path) -> dict[str, Any]:
    content = json.loads((folder / "checkpoint.json").read_text(encoding="utf-8"))
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}, expected {FORMAT!r}")
    if content.pop("own_sha256") != _digest_of(content):
        raise ValueError("checkpoint.json has changed since it was written (SHA-256)")
    return content


def _check_files(folder: Path, content: Mapping[str, Any]) -> None:
    for name, digest in content["sha256"].items():
        if _digest(folder / name) != digest:
            raise ValueError(f"{name} has changed since it was written (SHA-256)")


def _read(folder: Path, processes: Processes) -> Checkpoint:
    """What this process needs: what all have alike, and its own; written by another number, what each had."""
    content = _read_index(folder)
    wrote = content["processes"]
    ranks = [processes.rank] if wrote == processes.count else range(wrote)
    carried = [_read_part(folder / f"{_own_part(rank)}.safetensors") for rank in ranks]
    of_ranks = {_own_part(rank) for rank in range(wrote)}
    names = [name.removesuffix(".safetensors") for name in content["sha256"]]
    parts = {part: _read_part(folder / f"{part}.safetensors") for part in names if part not in of_ranks}
    return Checkpoint(folder, content["step"], content["settings"], wrote, parts, carried)


def _read_part(path: Path) -> dict[str, Any]:
    with safe_open(path, framework="pt") as file:
        numbers = json.loads(file.metadata()["numbers"])
        # cloned: kernels may add up in another order where memory is aligned otherwise
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (no mapping)
    return {**numbers, **tensors}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def check_settings(checkpoint: Checkpoint, settings: Mapping[str, Any]) -> None:
    """Raises where a run would go on with other settings than it began with, and names them.

    Those of the engine that change nothing of what is trained may be others.

    Raises:
        EverlongError: some setting differs.
    """
    before = {"inputs": settings.get("inputs"), **checkpoint.settings}  # not noted down by earlier versions
    names = [name for name in {**before, **settings} if name not in CHANGEABLE]
    changed = [name for name in names if before.get(name) != settings.get(name)]
    if changed:
        differences = "; ".join(f"{name} {settings.get(name)}, was {before.get(name)}" for name in changed)
        raise EverlongError(
            f"{checkpoint.path} was written with other settings ({differences}): go on with those, or start a new run"
        )
