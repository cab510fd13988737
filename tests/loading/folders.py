"""Formats, how their folders are changed, and what opening one is answered with."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from everlong.errors import EverlongError
from everlong.loading import open_model

FORMATS = ("everlong", "state-spaces", "transformers")
every_format = pytest.mark.parametrize("name", FORMATS)


def edit(folder: Path, change: dict[str, Any], inner: str | None = None) -> None:
    """Changes keys of a config.json, or of an object in it; None removes."""
    config = json.loads((folder / "config.json").read_text())
    target = config[inner] if inner else config
    for key, value in change.items():
        target.pop(key, None) if value is None else target.update({key: value})
    (folder / "config.json").write_text(json.dumps(config))


def tensors_of(folder: Path) -> tuple[Path, dict[str, torch.Tensor]]:
    path = next(folder.glob("*model.*"))
    return path, load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)


def rewrite(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Changes the weights file."""
    path, tensors = tensors_of(folder)
    tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    change(tensors)
    save_file(tensors, path) if path.suffix == ".safetensors" else torch.save(tensors, path)


def refusal(request: Any, **settings: Any) -> str:
    """The message of the error that opening gives, checked for being one clear line."""
    with pytest.raises(EverlongError) as error:
        open_model(request, **{"backend": "chunked", **settings})
    message = str(error.value)
    assert "\n" not in message
    assert "Traceback" not in message
    assert error.value.exit_code == 2
    return message
