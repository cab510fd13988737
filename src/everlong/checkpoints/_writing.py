"""Writing a model's folder at once or not at all."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from everlong.checkpoints._checkpoint import Container, first_line
from everlong.disk import flush_all, is_full, make_folder, rename
from everlong.errors import EverlongError, RunStopped

PICKLED = {"bin": "pytorch_model.bin", "pth": "model.pth"}
LARGEST_COPIED = 64 * 2**20
WEIGHTS_SUFFIXES = {".bin", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".pt", ".pth", ".safetensors"}
NOT_COPIED = {"config.json", "everlong.json", "readme.md", "trainer_state.json"}  # a model card speaks of another model


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A temporary folder beside ``target`` that takes its place when the block ends well, and vanishes otherwise.

    Every file is on the disk before the folder has its name: a model that is there outlives a power loss.

    Raises:
        EverlongError: something exists at ``target`` already, or it cannot be written.
        RunStopped: the disk is full.
    """
    if target.exists() or target.is_symlink():
        raise EverlongError(f"{target} exists already; nothing is written over, give another folder")
    partial = target.parent / f".{target.name}.partial-{os.getpid()}"
    try:
        make_folder(target.parent)
        partial.mkdir()
        yield partial
        flush_all(partial)
        rename(partial, target)
    except (OSError, SafetensorError) as error:
        kind = RunStopped if is_full(error) else EverlongError
        raise kind(f"the model cannot be written to {target}: {first_line(error)}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def write_folder(
    target: Path,
    *,
    json_files: Mapping[str, Mapping[str, Any]],
    tensors: Mapping[str, Tensor],
    container: Container,
    copy_from: Path | None,
) -> None:
    """Writes a model's folder atomically: JSON files, one weights file, and the small files of another folder."""
    with new_folder(target) as folder:
        if copy_from is not None:
            for file in small_files(copy_from):
                shutil.copyfile(file, folder / file.name)
        for name, content in json_files.items():
            (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        if container == "safetensors":
            plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            save_file(_apart(plain), str(folder / "model.safetensors"), metadata={"format": "pt"})
        else:
            plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
            with (folder / PICKLED[container]).open("wb") as file:
                torch.save(plain, file)


def small_files(folder: Path) -> list[Path]:
    """The files that go along with a model: tokenizer, generation settings, licence; no weights and no model card."""
    return [
        file
        for file in sorted(folder.iterdir())
        if file.is_file()
        and not file.name.startswith(".")
        and file.suffix not in WEIGHTS_SUFFIXES
        and not file.name.endswith(".index.json")
        and file.name.lower() not in NOT_COPIED
        and file.stat().st_size <= LARGEST_COPIED
    ]


def _apart(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, those that share memory copied: safetensors stores none twice by reference."""
    seen: set[int] = set()
    apart = {}
    for name, tensor in tensors.items():
        apart[name] = tensor.clone() if tensor.data_ptr() in seen else tensor
        seen.add(tensor.data_ptr())
    return apart
