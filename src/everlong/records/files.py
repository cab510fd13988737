"""How records are written and read: JSON to read, arrays in .npz beside it. Free of torch."""

import json
from pathlib import Path
from typing import Any

import cattrs
import numpy as np

from everlong.disk import flush, make_folder, rename
from everlong.errors import EverlongError, RunStopped
from everlong.records import conversion, diagnosis, doctor, experiment, measurements, repair, sweep, tasks, training
from everlong.records._record import Record

MODULES = (conversion, diagnosis, doctor, experiment, measurements, repair, sweep, tasks, training)
KINDS = {
    name: kind
    for module in MODULES
    for name, kind in vars(module).items()
    if isinstance(kind, type) and issubclass(kind, Record)
}


def save_record(record: Record, path: Path) -> None:
    """Writes ``path`` (JSON) and, where the record has arrays, a .npz beside it; the JSON appears last, and whole.

    Both are on the disk before they have their names, so that a record which is there outlives a power loss.
    """
    arrays: dict[str, np.ndarray] = {}

    def set_aside(array: np.ndarray) -> dict[str, str]:
        name = f"array_{len(arrays)}"
        arrays[name] = array
        return {"npz": name}

    converter = cattrs.Converter()
    converter.register_unstructure_hook(np.ndarray, set_aside)
    content = {"record": type(record).__name__, **converter.unstructure(record)}
    make_folder(path.parent)
    beside = path.with_suffix(".npz")
    temporary, beside_temporary = path.with_name(f".{path.name}"), beside.with_name(f".{beside.name}")
    try:
        if arrays:
            with beside_temporary.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **arrays)
            flush(beside_temporary)
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        flush(temporary)
        if arrays:
            rename(beside_temporary, beside)
        rename(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
        beside_temporary.unlink(missing_ok=True)


def load_record(path: Path) -> Any:
    """Reads a record back, arrays included, as the type that it was written from.

    Raises:
        EverlongError: the file is missing, torn, or no record.
        RunStopped: it is there, but the disk does not give it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        kind = KINDS[content.pop("record")]
        arrays = _arrays(path.with_suffix(".npz"))
        converter = cattrs.Converter()
        converter.register_structure_hook(np.ndarray, lambda value, _: arrays[value["npz"]])
        return converter.structure(content, kind)
    except FileNotFoundError:
        raise EverlongError(f"no record at {path}") from None
    except OSError as error:
        raise RunStopped(f"{path} cannot be read from the disk ({error}); it is left as it is") from None
    except Exception as error:
        raise EverlongError(f"{path} is no readable record: {error!r}") from None


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        return {}
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)
