"""Reading weights files: safetensors, sharded or whole, and pytorch_model.bin as tensors only. No code is unpickled."""

import pickle
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from everlong.checkpoints._checkpoint import Container, first_line, read_json
from everlong.errors import EverlongError

CANDIDATES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Named tensors as a file holds them, on the CPU in the file's dtypes."""

    tensors: Mapping[str, Tensor]
    path: Path
    container: Container


def is_weights_file(path: Path) -> bool:
    """Whether a file's name says that it holds weights."""
    return path.suffix in (".safetensors", ".bin", ".pth")


def read_weights(folder: Path, preferred: Path | None = None) -> Weights:
    """Reads a folder's weights.

    Args:
        folder: the model's folder.
        preferred: the very file to read; None: the first of ``CANDIDATES`` that is there.

    Raises:
        EverlongError: there are none, or they are torn, or hold something else than tensors.
    """
    path = preferred or next((folder / name for name in CANDIDATES if (folder / name).is_file()), None)
    if path is None:
        raise EverlongError(
            f"{folder} has a config.json and no weights (half-written?); one of {', '.join(CANDIDATES)} is needed"
        )
    container: Container = "safetensors" if ".safetensors" in path.name else "bin"
    tensors = _read_shards(path) if path.name.endswith(".index.json") else _read_file(path)
    return Weights(tensors=tensors, path=path, container=container)


def _read_shards(index: Path) -> dict[str, Tensor]:
    table = read_json(index).get("weight_map")
    if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
        raise EverlongError(f'{index} is no index of shards: it has no "weight_map"')
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(table.values())):
        shard = index.parent / Path(name).name  # shards stand beside their index, never elsewhere
        if not shard.is_file():
            raise EverlongError(f"{index} names the shard {name}, which is missing (half-written?)")
        tensors |= _read_file(shard)
    absent = sorted(set(table) - set(tensors))
    if absent:
        raise EverlongError(f"{index} names {absent[0]}, which its shard {table[absent[0]]} does not hold")
    return tensors


def _read_file(path: Path) -> dict[str, Tensor]:
    with path.open("rb") as file:
        if file.read(24).startswith(b"version https://git-lfs"):
            raise EverlongError(f"{path} is a git-lfs pointer, the weights were not downloaded: run `git lfs pull`")
    if path.name.endswith(".safetensors"):
        try:
            with safe_open(str(path), framework="pt") as opened:
                return {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 (no mapping)
        except SafetensorError as error:
            raise EverlongError(f"{path} is torn or no safetensors file: {first_line(error)}") from error
    return _read_pickle(path)


def _read_pickle(path: Path) -> dict[str, Tensor]:
    whole = zipfile.is_zipfile(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=whole)
    except pickle.UnpicklingError as error:
        if not whole:
            raise EverlongError(f"{path} is torn or no PyTorch file: {first_line(error)}") from error
        raise EverlongError(
            f"{path} holds objects that are not tensors, and Everlong never unpickles code: save the state dict alone"
        ) from error
    except (EOFError, KeyError, OSError, RuntimeError, ValueError) as error:
        raise EverlongError(f"{path} is torn or no PyTorch file: {first_line(error)}") from error
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise EverlongError(f"{path} is no state dict: it must be a dictionary of tensors by name")
    return content
