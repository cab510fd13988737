"""A verb's configuration as a run folder keeps it, and how it is read back."""

from collections.abc import Mapping
from typing import Any, TypeVar

from cattrs.preconf.json import make_converter

from everlong.models.architectures import CONFIGS
from everlong.workflows.config import Architecture, DiagnoseConfig, EvaluateConfig, RepairConfig, TrainConfig

Config = TypeVar("Config", DiagnoseConfig, EvaluateConfig, RepairConfig, TrainConfig)

_converter = make_converter()  # an architecture's settings are written with its name
_converter.register_unstructure_hook_func(
    lambda kind: kind == Architecture,
    lambda model: {"architecture": model.architecture, **_converter.unstructure(model, type(model))},
)
_converter.register_structure_hook_func(
    lambda kind: kind == Architecture,
    lambda value, _: _converter.structure(
        {name: setting for name, setting in value.items() if name != "architecture"}, CONFIGS[value["architecture"]]
    ),
)


def written(config: Config) -> dict[str, Any]:
    """A configuration as JSON can hold it."""
    return _converter.unstructure(config)


def read_back(values: Mapping[str, Any], kind: type[Config]) -> Config:
    """The configuration that was written; what it did not have yet is set as by default."""
    return _converter.structure(values, kind)
