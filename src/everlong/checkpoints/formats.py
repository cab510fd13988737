"""The registry of checkpoint formats, and which of them a config.json or a file is of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everlong.checkpoints._file_format import FileFormat
from everlong.checkpoints._format import CheckpointFormat
from everlong.errors import EverlongError
from everlong.registry import Registry

FORMATS = Registry(
    "checkpoint format",
    {
        "everlong": "everlong.checkpoints.everlong:EverlongFormat",
        "fla": "everlong.checkpoints.fla:FlaFormat",
        "rwkv": "everlong.checkpoints.rwkv:RWKVFormat",
        "rwkv.cpp": "everlong.checkpoints.rwkv_cpp:RWKVCppFormat",
        "state-spaces": "everlong.checkpoints.state_spaces:StateSpacesFormat",
        "transformers": "everlong.checkpoints.transformers:TransformersFormat",
    },
)


def recognise(config: Mapping[str, Any], path: Path) -> CheckpointFormat:
    """The format that a config.json is of.

    Raises:
        EverlongError: it is of none; the known ones are listed with what shows them.
    """
    formats: list[CheckpointFormat] = [kind() for kind in FORMATS.values() if issubclass(kind, CheckpointFormat)]
    for each in formats:
        if each.recognises(config):
            return each
    known = "; ".join(f"{each.name} has {each.signature}" for each in formats)
    raise EverlongError(f"{path} is of no known checkpoint format: {known}")


def check_writable(name: str) -> None:
    """Raises where a format is unknown, or one that models are only read from (its ``writable`` is False)."""
    if not is_writable(name):
        others = ", ".join(each for each in FORMATS if is_writable(each))
        raise EverlongError(f"the {name} format is read only; those that can be written: {others}")


def is_writable(name: str) -> bool:
    """Whether models can be written in a format."""
    return getattr(FORMATS[name], "writable", True)


def recognise_file(path: Path) -> FileFormat | None:
    """The format of single files that a file is of, or None."""
    formats: list[FileFormat] = [kind() for kind in FORMATS.values() if issubclass(kind, FileFormat)]
    return next((each for each in formats if each.recognises(path)), None)
