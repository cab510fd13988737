"""Sets of examples, made once and kept: by task, settings, texts, parameters, tokenizer, seed and number."""

import hashlib
import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from everlong.data import _permutation
from everlong.data.tokenizers import Tokenizer
from everlong.errors import EverlongError
from everlong.tasks._task import Example, Parameters, Task

WORDS = ("target", "kind", "question", "options")


def default_folder() -> Path:
    """Where sets are kept: $XDG_CACHE_HOME/everlong/tasks, or ~/.cache/everlong/tasks."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "everlong" / "tasks"


def example_set(task: Task, parameters: Parameters, *, seed: int, count: int, folder: Path) -> tuple[Example, ...]:
    """The first ``count`` examples of a cell, read where they were made before, else made and kept.

    Args:
        task: makes them.
        parameters: of the cell.
        seed: of the draws.
        count: how many.
        folder: of all sets; a file that cannot be read there is made anew.

    Raises:
        EverlongError: the length is too short for the task, or the folder cannot be written to.
    """
    key = json.dumps(
        [task.fingerprint(parameters), dict(parameters), tokenizer_fingerprint(task.tokenizer), seed, count, _code()],
        sort_keys=True,
    )
    path = folder / f"{task.name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz"
    found = _read(path)
    if found is None:
        found = tuple(task.example(parameters, seed=seed, index=index) for index in range(count))
        _write(path, found)
    return found


def tokenizer_fingerprint(tokenizer: Tokenizer) -> str:
    """Of all files that a tokenizer consists of, in hex; bytes have none."""
    digest = hashlib.sha256(type(tokenizer).__name__.encode())
    with TemporaryDirectory() as folder:
        tokenizer.save(Path(folder))
        for path in sorted(Path(folder).iterdir()):
            digest.update(path.name.encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def sources() -> list[Path]:
    """The files whose code decides what an example is."""
    return [*sorted(Path(__file__).parent.glob("*.py")), Path(_permutation.__file__)]


def _code() -> str:
    """Of the sources that make examples: another wording is another set."""
    digest = hashlib.sha256()
    for path in sources():
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _read(path: Path) -> tuple[Example, ...] | None:
    try:
        with zipfile.ZipFile(path) as whole:
            if whole.testzip() is not None:  # numpy reads no further than its header says, so it may miss damage
                return None
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            words = json.loads(str(arrays["words"]))
            prompts, answers = (_parts(arrays, name, len(words)) for name in ("prompt", "answer"))
        return tuple(
            Example(prompt=prompt, answer=answer, **{**fields, "options": tuple(fields["options"])})
            for prompt, answer, fields in zip(prompts, answers, words, strict=True)
        )
    except Exception:  # damage shows as any error of zipfile, zlib, tokenize (a header) or numpy; the set is made anew
        return None


def _parts(arrays: np.lib.npyio.NpzFile, name: str, count: int) -> list[np.ndarray]:
    lengths = arrays[f"{name}_lengths"]
    if len(lengths) != count:
        raise ValueError(f"{name}: {len(lengths)} lengths for {count} examples")
    return np.split(arrays[name].astype(np.int32), np.cumsum(lengths)[:-1])


def _write(path: Path, examples: Sequence[Example]) -> None:
    words = [{name: getattr(example, name) for name in WORDS} for example in examples]
    arrays = {"words": np.array(json.dumps(words))}
    for name in ("prompt", "answer"):
        rows = [getattr(example, name) for example in examples]
        joined = np.concatenate(rows)
        arrays[name] = joined.astype(np.uint16 if joined.max() < 1 << 16 else np.uint32)
        arrays[f"{name}_lengths"] = np.array([len(row) for row in rows])
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(temporary, allow_pickle=False, **arrays)
        temporary.replace(path)
    except OSError as error:
        raise EverlongError(f"{path.parent} cannot be written to ({error.strerror}): give --cache FOLDER") from None
    finally:
        temporary.unlink(missing_ok=True)
