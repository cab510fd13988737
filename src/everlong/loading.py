"""Opening and saving models: a folder, a file inside one, or a hub id, in any known checkpoint format."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from pathlib import Path

import torch
from torch import Tensor

from everlong import launch
from everlong.checkpoints._bundled import BUNDLED, bundled_folder
from everlong.checkpoints._checkpoint import Checkpoint, Placement, first_line, read_json
from everlong.checkpoints._file_format import FileFormat
from everlong.checkpoints._hub import fetch, is_hub_id
from everlong.checkpoints._weights import is_weights_file, read_weights
from everlong.checkpoints.formats import FORMATS, recognise, recognise_file
from everlong.errors import EverlongError
from everlong.models.language_model import LanguageModel
from everlong.models.presets import published_context
from everlong.ops.backends import choose

STORED = "stored"
"""As a dtype: the file's own, or the widest of them."""
DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")}


def open_model(
    request: str | Path,
    *,
    backend: str = "auto",
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> Checkpoint:
    """Opens a model.

    Args:
        request: a folder with config.json and weights, a file inside one (a weights file is then the one read), a model
            in one file (RWKV's .pth or .bin) or the folder that holds it, ``owner/name`` on the hub where no such
            path exists, or "bundled", the model that comes with the package.
        backend: which backend the recurrences take.
        device: where the model goes; None: the CPU.
        dtype: float32, bfloat16, float16 or float64; None: float32, whatever the file holds; "stored": what it holds.

    Returns:
        The model in evaluation mode, and what is known of it.

    Raises:
        EverlongError: anything is missing, torn, unknown or contradictory; one line that names it.
    """
    if request == BUNDLED:
        return replace(open_model(bundled_folder(), backend=backend, device=device, dtype=dtype), name=BUNDLED)
    placement = _placement(backend, device, None if dtype == STORED else dtype)
    single = _single_file(Path(request).expanduser())
    if single is not None:
        return _open_file(*single, placement, dtype == STORED)
    folder, preferred, name = _locate(request)
    config_path = folder / "config.json"
    if not config_path.is_file():
        raise EverlongError(f"{folder} has no config.json; MODEL is a folder with config.json and weights")
    config = read_json(config_path)
    format_ = recognise(config, config_path)
    format_.parse(config, config_path)  # before the weights: what is refused is refused at once
    context, tokenizer = format_.read_settings(folder, config)
    weights = read_weights(folder, preferred)
    if dtype == STORED:
        placement = _widest(weights.tensors, placement)
    return Checkpoint(
        model=format_.read(folder, config, weights, placement),
        format=format_.name,
        context=context if context is not None else published_context(name),
        tokenizer=tokenizer,
        folder=folder,
        name=name,
        config=config,
        container=weights.container,
        weights=weights.path,
        stored_dtypes=_dtypes(weights.tensors),
    )


def load(
    request: str | Path,
    *,
    backend: str = "auto",
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
) -> LanguageModel:
    """The model alone; see ``open_model``."""
    return open_model(request, backend=backend, device=device, dtype=dtype).model


def save(
    model: Checkpoint | LanguageModel,
    folder: str | Path,
    *,
    source: Checkpoint | None = None,
    format: str | None = None,
    context: int | None = None,
    tokenizer: str | None = None,
) -> None:
    """Saves a model into a new folder, atomically, in the model's dtype.

    Args:
        model: a model, or a checkpoint (its model, with itself as the source).
        folder: the target; must not exist.
        source: the checkpoint that the model came from: its format, container, unknown configuration keys and other
            small files are kept, and its context and tokenizer stand where none are given.
        format: a name from ``FORMATS``; None: the source's, or Everlong's own where that is read only.
        context: the training length in tokens.
        tokenizer: the tokenizer's name.
    """
    if isinstance(model, Checkpoint):
        source, model = source or model, model.model
    if format is None:
        format = source.format if source and getattr(FORMATS[source.format], "writable", True) else "everlong"
    writer = FORMATS[format]()
    if source is not None:
        context = source.context if context is None else context
        tokenizer = source.tokenizer if tokenizer is None else tokenizer
    writer.write(model, Path(folder), source=source, context=context, tokenizer=tokenizer)


def best_device(requested: str | None) -> str:
    """The device asked for, or else a GPU where CUDA has one, or the CPU; of several processes each has its own GPU."""
    device = requested or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and launch.process_count() > 1:
        device = f"cuda:{launch.local_rank()}"
        torch.cuda.set_device(device)
    return device


def parse_dtype(dtype: str | torch.dtype | None) -> torch.dtype:
    """The dtype of a name; None: float32."""
    name = "float32" if dtype is None else str(dtype).removeprefix("torch.")
    if name not in DTYPES:
        raise EverlongError(f"dtype is {name!r}; known: {', '.join(DTYPES)}")
    return DTYPES[name]


def _placement(backend: str, device: str | torch.device | None, dtype: str | torch.dtype | None) -> Placement:
    parsed = parse_dtype(dtype)
    try:
        place = torch.device("cpu" if device is None else device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise EverlongError(f"device {str(device)!r} cannot be used here: {first_line(error)}") from error
    wide = torch.promote_types(parsed, torch.float32)  # of the states
    choose(backend, place, wide)  # an unknown or unable backend is an error before anything is read
    return Placement(backend=backend, device=place, dtype=parsed)


def _dtypes(tensors: Mapping[str, Tensor]) -> Counter[str]:
    return Counter(str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values())


def _widest(tensors: Mapping[str, Tensor], placement: Placement) -> Placement:
    """The placement in the widest dtype of some tensors."""
    floating = [tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()]
    return _placement(placement.backend, placement.device, reduce(torch.promote_types, floating or [torch.float32]))


def _single_file(path: Path) -> tuple[Path, FileFormat, bool] | None:
    """The model of one file that a path means, its format, and whether the path is that of its folder."""
    if path.is_file():
        candidates = [path]
    elif path.is_dir() and not (path / "config.json").exists():
        candidates = [file for file in sorted(path.iterdir()) if file.is_file()]
    else:
        return None
    found = [(file, format_) for file in candidates if (format_ := recognise_file(file))]
    if len(found) > 1:
        raise EverlongError(f"{path} holds several models: {', '.join(file.name for file, _ in found)}; give one file")
    return (*found[0], path.is_dir()) if found else None


def _open_file(file: Path, format_: FileFormat, by_folder: bool, placement: Placement, stored: bool) -> Checkpoint:
    context, tokenizer = format_.read_settings(file)
    tensors = format_.read_tensors(file)
    if stored:
        placement = _widest(tensors, placement)
    name = file.resolve().parent.name if by_folder else file.stem
    return Checkpoint(
        model=format_.read(file, placement),
        format=format_.name,
        context=context if context is not None else published_context(name),
        tokenizer=tokenizer,
        folder=file.parent,
        name=name,
        config={},
        container="pth",
        file=None if by_folder else file,
        weights=file,
        stored_dtypes=format_.stored_dtypes(file, tensors),
    )


def _locate(request: str | Path) -> tuple[Path, Path | None, str]:
    """The folder, the weights file asked for or None, and the model's name."""
    path = Path(request).expanduser()
    if path.is_dir():
        return path, None, path.resolve().name
    if path.is_file():
        if not is_weights_file(path) and path.suffix != ".json":
            raise EverlongError(
                f"{path} is no model; give its folder, its config.json, or a .safetensors, .bin or .pth file"
            )
        shard = path.suffix == ".json" or "-of-" in path.stem
        return path.parent, None if shard else path, path.resolve().parent.name
    if is_hub_id(str(request)):
        return fetch(str(request)), None, str(request)
    raise EverlongError(f"no model at {str(request)!r}; MODEL is a folder, a file inside one, or owner/name on the hub")
