"""What opening a model gives, and the reading of the JSON files of its folder."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from everlong.errors import EverlongError
from everlong.models.language_model import LanguageModel

Container = Literal["safetensors", "bin", "pth"]


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model and where it came from; ``everlong.loading.save`` takes it back into the format it came in."""

    model: LanguageModel
    format: str
    """A name from ``everlong.checkpoints.formats.FORMATS``."""
    context: int | None
    """The training length in tokens: from our own configuration or the preset it is named after; None: unknown."""
    tokenizer: str | None
    """The tokenizer that our configuration names ("bytes", a path or an id), or None."""
    folder: Path
    """The folder that was read."""
    name: str
    """The folder's name or the hub id, for people and presets."""
    config: Mapping[str, Any] = field(repr=False)
    """config.json as it was read; keys that Everlong does not know are written back."""
    container: Container
    """What the weights were stored in."""
    weights: Path | None = None
    """The weights file, or index of shards, that was read."""
    stored_dtypes: Mapping[str, int] = field(default_factory=dict)
    """The dtypes that it holds -> the number of tensors of each; the model's own dtype is what was asked for."""
    file: Path | None = None
    """The file that was asked for, where the format is one of single files: its neighbours are no part of the model."""

    @property
    def own_folder(self) -> Path | None:
        """The folder, where its other small files belong to the model."""
        return None if self.file else self.folder


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where and how a model is wanted."""

    backend: str
    device: torch.device
    dtype: torch.dtype


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object.

    Raises:
        EverlongError: the file cannot be read, is not JSON, or holds something else than an object.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise EverlongError(f"{path} cannot be read: {first_line(error)}") from error
    except json.JSONDecodeError as error:
        raise EverlongError(f"{path} is not JSON (half-written?): {error}") from error
    if not isinstance(content, dict):
        raise EverlongError(f"{path} holds a {type(content).__name__}, a JSON object is needed")
    return content


def first_line(error: BaseException) -> str:
    """The first line of an error's text, or its class where it has none: messages for people are one line."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__
