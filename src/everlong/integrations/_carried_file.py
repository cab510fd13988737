"""What the rows of a process carry from step to step, in a checkpoint of the transformers Trainer: no pickle.

checkpoint-100/everlong-carried-RANK.safetensors      one of each process; numbers and settings in the metadata, as JSON
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from everlong.errors import EverlongError
from everlong.runs import write_bytes

FORMAT = "everlong-carried-1"


def write_carried(
    checkpoint: str | Path,
    rank: int,
    values: Mapping[str, Tensor | int | float | str],
    own: list[int],
    processes: int,
    settings: Mapping[str, Any],
) -> None:
    """Writes a process's file, whole or not at all.

    Args:
        checkpoint: the folder.
        rank: the process.
        values: what is carried, flat, by name.
        own: the places in a step of the rows that the process reads.
        processes: how many there are.
        settings: what a resume must find unchanged; plain JSON.
    """
    numbers = {name: value for name, value in values.items() if not isinstance(value, Tensor)}
    tensors = {name: value.detach().cpu().contiguous() for name, value in values.items() if isinstance(value, Tensor)}
    content = {"numbers": numbers, "settings": settings, "own": own, "processes": processes}
    metadata = {"format": FORMAT, **{name: json.dumps(value) for name, value in content.items()}}
    write_bytes(_path(checkpoint, rank), save(tensors, metadata=metadata))


def carried_for(checkpoint: str | Path, rank: int, own: list[int], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a process wrote, if it had the rows that it has now; otherwise what each process wrote, in their order.

    Raises:
        EverlongError: a file is missing or torn, or was written with other settings (named).
    """
    first = _read(checkpoint, 0, settings)
    found = first if rank == 0 else _read(checkpoint, rank, settings) if rank < first.processes else None
    if found and found.own == own:
        return [found.values]
    return [first.values, *(_read(checkpoint, other, settings).values for other in range(1, first.processes))]


@dataclass(frozen=True)
class _Content:
    values: dict[str, Any]
    own: list[int]
    processes: int


def _read(checkpoint: str | Path, rank: int, settings: Mapping[str, Any]) -> _Content:
    path = _path(checkpoint, rank)
    if not path.is_file():
        raise EverlongError(
            f"{path} is missing, so what was carried cannot be gone on with: the checkpoint was written by another "
            "trainer, with save_only_model, or on a machine of its own; load the model from it and begin a new training"
        )
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            # cloned: kernels may add up in another order where memory is aligned otherwise
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        raise EverlongError(f"{path} cannot be read (torn?): {error}; resume from an earlier checkpoint") from error
    if metadata.get("format") != FORMAT:
        raise EverlongError(f"{path} has the format {metadata.get('format')!r}, expected {FORMAT!r}")
    numbers, before, own, processes = (json.loads(metadata[key]) for key in ("numbers", "settings", "own", "processes"))
    now = json.loads(json.dumps(settings))
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if changed:
        differences = "; ".join(f"{name} {now.get(name)}, was {before.get(name)}" for name in changed)
        raise EverlongError(f"{path} was written with other settings ({differences}): go on with those")
    return _Content({**numbers, **tensors}, own, processes)


def _path(checkpoint: str | Path, rank: int) -> Path:
    return Path(checkpoint) / f"everlong-carried-{rank:05d}.safetensors"
