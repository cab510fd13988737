"""Runs that others are made of can be killed and started again: a run that is there is gone on with."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from everlong.workflows.config import DiagnoseConfig, EvaluateConfig, RepairConfig, RuntimeConfig, TrainConfig

Config = TypeVar("Config", DiagnoseConfig, EvaluateConfig, RepairConfig, TrainConfig)


def in_folder(config: Config, folder: Path) -> Config:
    """The configuration for a run in ``folder``: a new one; where it is there, to go on with it by its own settings."""
    if folder.exists():
        return type(config)(runtime=RuntimeConfig(resume=str(folder)))
    return replace(config, runtime=replace(config.runtime, output=str(folder)))
