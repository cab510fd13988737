"""Runs that others are made of can be killed and started again: a run that is there is gone on with."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from everlong.errors import EverlongError
from everlong.runs import stored_settings
from everlong.workflows._settings import Config, read_back, written
from everlong.workflows.config import RuntimeConfig

PLACES = ("runtime.output", "runtime.resume")


def in_folder(config: Config, folder: Path) -> Config:
    """The configuration for a run in ``folder``: a new one, or one that goes on with what is there.

    Raises:
        EverlongError: what is there was begun with other settings.
    """
    if folder.exists():
        check_same(config, folder)
        return type(config)(runtime=RuntimeConfig(resume=str(folder)))
    return replace(config, runtime=replace(config.runtime, output=str(folder)))


def check_same(config: Config, folder: Path) -> None:
    """Refuses a run that was begun with other settings than those that are asked for.

    Raises:
        EverlongError: the first that differs, what it is there and what it was to be; or the folder is no run's.
    """
    _, begun, _ = stored_settings(folder)
    there = dict(_leaves(written(read_back(begun, type(config), folder / "config.json"))))
    wanted = dict(_leaves(written(config)))
    for name in {**there, **wanted}:
        one, other = there.get(name), wanted.get(name)
        if name not in PLACES and one != other and not _one_place(one, other):
            raise EverlongError(
                f"{folder} was begun with {name} {_told(one)}, now {_told(other)} is asked for: give the settings that "
                "it was begun with, or another --output"
            )


def _leaves(settings: Mapping[str, Any], of: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting by its dotted name."""
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{of}{name}.")
        else:
            yield of + name, value


def _one_place(one: Any, other: Any) -> bool:
    """Whether two texts name one file or folder."""
    return isinstance(one, str) and isinstance(other, str) and Path(one).resolve() == Path(other).resolve()


def _told(value: Any) -> str:
    return "nothing" if value is None else " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
