"""The registry of checkpoint formats, and which of them a config.json is of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from everlong.checkpoints._format import CheckpointFormat
from everlong.errors import EverlongError
from everlong.registry import Registry

FORMATS = Registry(
    "checkpoint format",
    {
        "everlong": "everlong.checkpoints.everlong:EverlongFormat",
        "state-spaces": "everlong.checkpoints.state_spaces:StateSpacesFormat",
        "transformers": "everlong.checkpoints.transformers:TransformersFormat",
    },
)


def recognise(config: Mapping[str, Any], path: Path) -> CheckpointFormat:
    """The format that a config.json is of.

    Raises:
        EverlongError: it is of none; the known ones are listed with what shows them.
    """
    formats: list[CheckpointFormat] = [kind() for kind in FORMATS.values()]
    for each in formats:
        if each.recognises(config):
            return each
    known = "; ".join(f"{each.name} has {each.signature}" for each in formats)
    raise EverlongError(f"{path} is of no known checkpoint format: {known}")
