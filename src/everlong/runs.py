"""The run folder: what a verb was asked, where it ran, what it measured, and how it goes on after a kill.

config.json        the verb and its configuration; `--resume` reads it back
environment.json   machine, packages and times
metrics.jsonl      one line a training step
checkpoints/       where an arm in training goes on
records/           typed records (JSON with arrays in .npz): a record that exists is a phase that is finished
models/            the models that came out, by method
figures/           each figure as SVG, PDF and CSV
report.html        one self-contained page
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from shutil import rmtree
from typing import Any, Protocol, TypeVar, runtime_checkable

from filelock import FileLock, Timeout

from everlong import launch
from everlong.errors import EverlongError, RunStopped
from everlong.records._record import Record
from everlong.records.files import load_record, save_record

PACKAGES = (
    "everlong",
    "torch",
    "accelerate",
    "transformers",
    "tokenizers",
    "datasets",
    "safetensors",
    "numpy",
    "numba",
)

Result = TypeVar("Result")


@runtime_checkable
class Crew(Protocol):
    """The processes that work on one run together; each calls each of these."""

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes and speaks."""
        ...

    def together(self, work: Callable[[], Result]) -> Result:
        """Does work on this process, and raises on all of them where it raised an error for people on any."""
        ...

    def on_main(self, work: Callable[[], object]) -> None:
        """Lets the first process do something while the others wait; its error for people is raised on all."""
        ...

    def share(self, text: str) -> str:
        """The first process's text, on all of them."""
        ...


class Alone:
    """A crew of one."""

    is_main = True

    def together(self, work: Callable[[], Result]) -> Result:
        """Does it."""
        return work()

    def on_main(self, work: Callable[[], object]) -> None:
        """Does it."""
        work()

    def share(self, text: str) -> str:
        """The text itself."""
        return text


class Run:
    """A run folder that this process holds: no second run can write to it meanwhile.

    Args:
        path: the folder.
        verb: whose run it is.
        config: its settings.
        crew: the processes of this run; the first holds the folder and writes, the others only read.
    """

    def __init__(self, path: Path, verb: str, config: Mapping[str, Any], crew: Crew | None = None):
        self.path, self.verb, self.config = path, verb, config
        self.crew: Crew = crew or Alone()
        self._lock = FileLock(path / ".lock", timeout=0)
        if not self.writes:
            return
        try:
            self._lock.acquire()
        except Timeout:
            raise EverlongError(f"{path} is in use by another process; wait for it, or stop it first") from None

    @classmethod
    def create(cls, path: Path | str | None, verb: str, config: Mapping[str, Any], crew: Crew | None = None) -> "Run":
        """Makes a new folder (default runs/VERB-TIME) and writes the configuration, as JSON can hold it, down.

        Raises:
            EverlongError: the folder exists (nothing is written over), or cannot be made.
        """
        folder = Path(path) if path else Path("runs") / f"{verb}-{time.strftime('%Y%m%d-%H%M%S')}"
        if folder.exists() or folder.is_symlink():
            raise EverlongError(
                f"--output {folder} exists; nothing is written over: choose another folder, or go on with "
                f"`{launch.command(f'{verb} --resume {folder}')}`"
            )
        partial = folder.with_name(f".{folder.name}.{os.getpid()}")
        try:  # whole or not at all: a folder without its configuration could be neither made nor gone on with
            partial.mkdir(parents=True)
            write_json(partial / "environment.json", environment())
            write_json(partial / "config.json", {"verb": verb, "config": dict(config)})
            partial.rename(folder)
        except OSError as error:
            rmtree(partial, ignore_errors=True)
            raise EverlongError(f"--output {folder} cannot be made: {error.strerror}") from None
        return cls(folder, verb, config, crew)

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes."""
        return self.crew.is_main

    @classmethod
    def open(cls, path: Path | str, verb: str | None = None, crew: Crew | None = None) -> "Run":
        """Opens an existing run folder, of any verb or of the one given.

        Raises:
            EverlongError: no run folder, another verb's, or one that another process holds.
        """
        folder = Path(path)
        try:
            stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))
            stored_verb, config = stored["verb"], stored["config"]
        except (OSError, ValueError, KeyError, TypeError):
            raise EverlongError(f"{folder} is no run folder: it has no readable config.json") from None
        if verb is not None and stored_verb != verb:
            raise EverlongError(f"{folder} is a run of `everlong {stored_verb}`, not of `everlong {verb}`")
        return cls(folder, stored_verb, config, crew)

    def close(self) -> None:
        """Lets other processes have the folder."""
        self._lock.release()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def has(self, name: str) -> bool:
        """Whether a record is there, hence its phase finished."""
        return (self.path / "records" / f"{name}.json").is_file()

    def save(self, name: str, record: Record) -> None:
        """Writes a record; it appears whole or not at all.

        Raises:
            RunStopped: it cannot be written (the disk is full, say).
        """
        try:
            save_record(record, self.path / "records" / f"{name}.json")
        except OSError as error:
            raise RunStopped(
                f"the record {name} cannot be written to {self.path} ({error}); what is finished is kept: make room, "
                f"then go on with `{launch.command(f'{self.verb} --resume {self.path}')}`"
            ) from error

    def load(self, name: str) -> Any:
        """Reads a record back."""
        return load_record(self.path / "records" / f"{name}.json")

    def phase(self, name: str, work: Callable[[], Record], *, everyone: bool = False) -> Any:
        """The record ``name``: read where it exists, else the result of ``work``, written down.

        Args:
            name: of the record.
            work: makes it.
            everyone: whether all processes of the run work on it together; otherwise the others wait for the first.
        """
        done = self.crew.share(str(self.has(name))) == str(True)
        if not done and everyone:
            record = work()
            self.crew.on_main(lambda: self.save(name, record))
        elif not done:
            self.crew.on_main(lambda: self.save(name, work()))
        return self.load(name)

    def log(self, line: Mapping[str, Any]) -> None:
        """Appends a line to metrics.jsonl."""
        if not self.writes:
            return
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def settle(self) -> None:
        """Waits until the metrics so far are on the disk."""
        path = self.path / "metrics.jsonl"
        if self.writes and path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())

    def rewind(self, phase: str, step: int) -> None:
        """Takes out the metrics of a phase from ``step`` on: the steps that a resumed arm runs again."""
        path = self.path / "metrics.jsonl"
        if not self.writes or not path.is_file():
            return
        kept = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # a line torn by the kill
            if entry.get("phase") != phase or entry["step"] < step:
                kept.append(line + "\n")
        write_bytes(path, "".join(kept).encode())


def environment() -> dict[str, Any]:
    """Machine and versions, without importing any of the packages."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "packages": versions,
    }


def write_json(path: Path, content: Any) -> None:
    """Writes JSON that appears whole or not at all."""
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Writes a file that appears whole or not at all, and survives a crash of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
