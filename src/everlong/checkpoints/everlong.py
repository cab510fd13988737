"""Everlong's own format: config.json names the architecture and its configuration, model.safetensors holds our names.

{"format": "everlong-1", "architecture": "mamba2", "model": {configuration fields}, "context": 64, "tokenizer": "bytes"}
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import Tensor

from everlong.checkpoints._fields import encode_float, parse_fields
from everlong.checkpoints._format import CheckpointFormat, settings_of
from everlong.errors import EverlongError
from everlong.models.architectures import ARCHITECTURES
from everlong.models.config import LanguageModelConfig
from everlong.models.language_model import LanguageModel

VERSION = "everlong-1"


class EverlongFormat(CheckpointFormat):
    """Every architecture; a tied head is stored once."""

    name = "everlong"
    signature = f'"format": "{VERSION}"'

    def recognises(self, config: Mapping[str, Any]) -> bool:
        """Any version, so that an unknown one is an error of its own."""
        return str(config.get("format", "")).startswith("everlong-")

    def parse(self, config: Mapping[str, Any], path: Path) -> LanguageModelConfig:
        """Checks the version and the architecture's name; the rest is the configuration's own."""
        if config["format"] != VERSION:
            raise EverlongError(f"{path}: format is {config['format']!r}; this version of Everlong reads {VERSION!r}")
        architecture, values = config.get("architecture"), config.get("model")
        if not isinstance(architecture, str) or architecture not in ARCHITECTURES:
            raise EverlongError(f"{path}: unknown architecture {architecture!r}; known: {', '.join(ARCHITECTURES)}")
        if not isinstance(values, dict):
            raise EverlongError(f'{path}: "model" is {values!r}; it must hold the fields of the configuration')
        return parse_fields(architecture, values, path=path)

    def compose(
        self, model: LanguageModel, source: Mapping[str, Any], *, context: int | None, tokenizer: str | None
    ) -> dict[str, Any]:
        """Every field is written, defaults too, so that a later default changes no old model."""
        fields = {name: _plain(value) for name, value in asdict(model.config).items()}
        ours = {"format": VERSION, "architecture": model.config.architecture, "model": fields}
        return {**source, **ours, "context": context, "tokenizer": tokenizer}

    def tensors(self, model: LanguageModel) -> dict[str, Tensor]:
        """The state dict, without the head where it is the embedding."""
        tensors = model.state_dict()
        if model.config.tie_embeddings:
            del tensors["lm_head.weight"]
        return tensors

    def read_settings(self, folder: Path, config: Mapping[str, Any]) -> tuple[int | None, str | None]:
        """From config.json itself."""
        return settings_of(config, folder / "config.json")

    def sidecar(self, context: int | None, tokenizer: str | None) -> dict[str, dict[str, Any]]:
        """None is needed."""
        return {}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return encode_float(value) if isinstance(value, float) else value
