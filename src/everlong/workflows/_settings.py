"""A verb's configuration as a run folder keeps it, and how it is read back."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from cattrs import transform_error
from cattrs.preconf.json import make_converter

from everlong.errors import EverlongError
from everlong.models.architectures import CONFIGS
from everlong.runs import Run
from everlong.training.config import CHANGEABLE
from everlong.workflows.config import Architecture, DiagnoseConfig, EvaluateConfig, RepairConfig, TrainConfig

Config = TypeVar("Config", DiagnoseConfig, EvaluateConfig, RepairConfig, TrainConfig)

_ENGINES = {RepairConfig: "engine", TrainConfig: "training"}  # the field that holds the engine's settings
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


def read_back(values: Mapping[str, Any], kind: type[Config], path: Path = Path("config.json")) -> Config:
    """The configuration that was written; what it did not have yet is set as by default.

    Raises:
        EverlongError: it is none that can be followed, such as one that was edited by hand.
    """
    try:
        return _converter.structure(values, kind)
    except Exception as error:
        first = _first(error)
        said = str(first) if isinstance(first, EverlongError) else "; ".join(transform_error(error)).splitlines()[0]
        raise EverlongError(f"{path} holds settings that cannot be followed: {said.replace('$', 'config')}") from None


def _first(error: BaseException) -> BaseException:
    """The first thing that is wrong, out of all that was found."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def followed(run: Run, kind: type[Config]) -> Config:
    """The configuration that a run has followed so far: as it was begun, with what later resumes were given.

    Raises:
        EverlongError: its config.json holds none that can be followed.
    """
    path = run.path / "config.json"
    config = read_back(run.config, kind, path)
    if not run.resumed_with:
        return config
    settings, group = written(config), _ENGINES[kind]
    return read_back({**settings, group: settings[group] | run.resumed_with}, kind, path)


def engine_settings(config: Config) -> dict[str, Any]:
    """Of a configuration's engine, the settings that a resume may change."""
    engine = getattr(config, _ENGINES.get(type(config), ""), None)
    return {name: getattr(engine, name) for name in CHANGEABLE} if engine else {}


def with_engine(config: Config, settings: Mapping[str, Any]) -> Config:
    """The same configuration, with other settings of its engine."""
    if not settings:
        return config
    group = _ENGINES[type(config)]
    return replace(config, **{group: replace(getattr(config, group), **settings)})


def given_to_engine(config: Config) -> dict[str, Any]:
    """The settings of the engine that are given, that is, are not as by default."""
    default = engine_settings(type(config)())
    return {name: value for name, value in engine_settings(config).items() if value != default[name]}
