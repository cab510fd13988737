"""Where each number of a model was read: the key of its config.json, and the tensor that shows it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from everlong.checkpoints._checkpoint import Checkpoint, read_json
from everlong.checkpoints._format import SIDECAR
from everlong.checkpoints._sizes import EMBEDDING, MIXER_SIZES
from everlong.checkpoints.formats import FORMATS
from everlong.models.presets import published_context


@dataclass(frozen=True, kw_only=True)
class Origin:
    """A field of the configuration, its value, and where that was read, in words."""

    field: str
    value: Any
    source: str


def origins(checkpoint: Checkpoint) -> Iterator[Origin]:
    """Every field of a model's configuration, in the configuration's order."""
    config, names = checkpoint.model.config, getattr(FORMATS[checkpoint.format], "field_names", {})
    shown = dict(_shown(checkpoint))
    for field in fields(config):
        key, tensor = _find(checkpoint.config, names.get(field.name, field.name)), shown.get(field.name)
        if not checkpoint.config:  # a format without one
            source = tensor or "the tensors' sizes, or fixed by the format"
        else:
            source = key or "no key of its own: the default, or it follows"
            source += f"; {tensor}" if tensor else ""
        yield Origin(field=field.name, value=getattr(config, field.name), source=source)


def context_source(checkpoint: Checkpoint) -> str | None:
    """Where the training context was read; None: it is not known."""
    if checkpoint.context is None:
        return None
    if place := _settings_file(checkpoint, "context", checkpoint.context):
        return place
    if checkpoint.context == published_context(checkpoint.name):
        return f"the published model of that name ({checkpoint.name})"
    return "the file's name"


def tokenizer_source(checkpoint: Checkpoint, name: str) -> str:
    """Where a tokenizer's name was read, or the folder that holds its files."""
    return _settings_file(checkpoint, "tokenizer", name) or str(checkpoint.folder)


def _settings_file(checkpoint: Checkpoint, key: str, value: Any) -> str | None:
    """config.json, or the file beside it that keeps the settings: whichever states the value."""
    if checkpoint.config.get(key) == value:
        return "config.json"
    sidecar = checkpoint.folder / SIDECAR
    return SIDECAR if sidecar.is_file() and read_json(sidecar).get(key) == value else None


def _shown(checkpoint: Checkpoint) -> Iterator[tuple[str, str]]:
    """Fields that the tensors show, checked when the model was opened, and the tensor that does."""
    embedding = EMBEDDING.removeprefix("backbone.")
    yield from {"vocab_size": embedding, "d_model": embedding, "n_layer": "layers.*"}.items()
    config = checkpoint.model.config
    shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.model.state_dict().items()}
    sizes = MIXER_SIZES.get(config.architecture)
    for field, _, tensor, _ in sizes(config, shapes) if sizes else ():
        yield field, tensor.removeprefix("backbone.")


def _find(config: Mapping[str, Any], name: str, within: str = "") -> str | None:
    """The key of that name, or the first in an object inside."""
    if name in config:
        return within + name
    inner = (_find(value, name, f"{within}{key}.") for key, value in config.items() if isinstance(value, Mapping))
    return next((key for key in inner if key), None)
