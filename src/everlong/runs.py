"""The run folder: what a verb was asked, where it ran, what it measured, and how it goes on after a kill.

config.json        the verb and its configuration; `--resume` reads it back, and adds what was given beside it
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
from everlong.disk import is_full, make_folder, rename
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
        config: the settings that it was begun with.
        crew: the processes of this run; the first holds the folder and writes, the others only read.
        resumed_with: settings of the engine that were given beside --resume since, by name.
    """

    def __init__(
        self,
        path: Path,
        verb: str,
        config: Mapping[str, Any],
        crew: Crew | None = None,
        resumed_with: Mapping[str, Any] | None = None,
    ):
        self.path, self.verb, self.config = path, verb, config
        self.resumed_with = dict(resumed_with or {})
        self.crew: Crew = crew or Alone()
        self.say: Callable[[str], None] = _to_standard_error
        """Is told what happens to the folder, in a line."""
        self._lock = FileLock(path / ".lock", timeout=0)
        if not self.writes:
            return
        try:
            self._lock.acquire()
        except Timeout:
            raise EverlongError(f"{path} is in use by another process; wait for it, or stop it first") from None
        except OSError as error:
            kind = RunStopped if is_full(error) else EverlongError
            raise kind(f"{path} cannot be written to: {error}") from None

    @classmethod
    def create(cls, path: Path | str | None, verb: str, config: Mapping[str, Any], crew: Crew | None = None) -> "Run":
        """Makes a new folder (default runs/VERB-TIME) and writes the configuration, as JSON can hold it, down.

        Raises:
            EverlongError: the folder exists (nothing is written over), or cannot be made.
            RunStopped: the disk is full.
        """
        folder = Path(path) if path else Path("runs") / f"{verb}-{time.strftime('%Y%m%d-%H%M%S')}"
        if folder.exists() or folder.is_symlink():
            raise EverlongError(
                f"--output {folder} exists; nothing is written over: choose another folder, or go on with "
                f"`{launch.command(f'{verb} --resume {folder}')}`"
            )
        partial = folder.with_name(f".{folder.name}.{os.getpid()}")
        try:  # whole or not at all: a folder without its configuration could be neither made nor gone on with
            make_folder(partial)
            write_json(partial / "environment.json", environment())
            write_json(partial / "config.json", {"verb": verb, "config": dict(config)})
            rename(partial, folder)
        except OSError as error:
            rmtree(partial, ignore_errors=True)
            kind = RunStopped if is_full(error) else EverlongError
            raise kind(f"--output {folder} cannot be made: {error.strerror}") from None
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
        stored_verb, config, resumed_with = stored_settings(folder)
        if verb is not None and stored_verb != verb:
            raise EverlongError(f"{folder} is a run of `everlong {stored_verb}`, not of `everlong {verb}`")
        return cls(folder, stored_verb, config, crew, resumed_with)

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

    def resume_with(self, settings: Mapping[str, Any]) -> None:
        """Goes on with other settings of the engine from now on; those that the run was begun with stay written.

        Raises:
            RunStopped: it cannot be written down.
        """
        self.resumed_with |= settings
        content = {"verb": self.verb, "config": dict(self.config), "resumed_with": self.resumed_with}
        try:
            write_json(self.path / "config.json", content)
        except OSError as error:
            raise RunStopped(f"{self.path / 'config.json'} cannot be written ({error}); it is as it was") from error

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

        One that is there and torn is set aside, with a line that says so, and made again.

        Args:
            name: of the record.
            work: makes it.
            everyone: whether all processes of the run work on it together; otherwise the others wait for the first.
        """
        readable = self.crew.together(lambda: self.writes and self._is_readable(name))
        done = self.crew.share(str(readable)) == str(True)
        if not done and everyone:
            record = work()
            self.crew.on_main(lambda: self.save(name, record))
        elif not done:
            self.crew.on_main(lambda: self.save(name, work()))
        return self.load(name)

    def _is_readable(self, name: str) -> bool:
        """Whether a record is there and whole; a torn one is set aside.

        Raises:
            RunStopped: it is there, but the disk does not give it.
        """
        if not self.has(name):
            return False
        try:
            self.load(name)
        except RunStopped:
            raise
        except EverlongError as error:
            path = self.path / "records" / f"{name}.json"
            aside = path.with_name(f"{path.name}.torn")
            rename(path, aside)
            self.say(f"{error}; it is set aside as {aside.name}, and its phase is done again")
            return False
        return True

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


def stored_settings(folder: Path) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The verb of a run folder, the settings that it was begun with, and those that later resumes were given.

    Raises:
        EverlongError: it is no run folder.
    """
    try:
        stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return stored["verb"], dict(stored["config"]), dict(stored.get("resumed_with", {}))
    except (OSError, ValueError, KeyError, TypeError):
        raise EverlongError(f"{folder} is no run folder: it has no readable config.json") from None


def _to_standard_error(line: str) -> None:
    print(line, file=sys.stderr)


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
    make_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
