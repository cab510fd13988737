"""From what --data names to inputs: files, folders, globs, and datasets of Hugging Face."""

import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from everlong.data._compression import COMPRESSIONS
from everlong.data._input import Input
from everlong.data.documents import EMPTY, Document, Documents
from everlong.errors import EverlongError
from everlong.registry import Registry

# ending -> class(path) on FileInput
FORMATS = Registry(
    "file ending",
    {
        ".jsonl": "everlong.data.jsonl_file:JsonlFile",
        ".md": "everlong.data.text_file:TextFile",
        ".parquet": "everlong.data.parquet_file:ParquetFile",
        ".py": "everlong.data.text_file:TextFile",
        ".txt": "everlong.data.text_file:TextFile",
    },
)
COMPRESSIBLE = tuple(ending for ending in FORMATS if ending != ".parquet")  # which compresses within
ALLOWED = f"{', '.join(COMPRESSIBLE)} (also {' or '.join(COMPRESSIONS)}) or .parquet"
_DATASET = re.compile(r"(?P<place>[^:]+)(:(?P<configuration>[^:]*)(:(?P<split>.+))?)?")
_HUB_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+")


def find_inputs(patterns: Sequence[str], *, stream: bool = False) -> list[Input]:
    """The inputs that patterns name, each once, in the given order; what a folder or glob holds in sorted order.

    Folders are walked to any depth; hidden files, hidden folders and ``__pycache__`` in them are passed over, and so
    are files with other endings. A dataset is ``owner/name[:configuration[:split]]``, or the same with a local folder
    in the place of ``owner/name`` and at least one colon; a name that exists is never taken for a dataset or a glob.

    Args:
        patterns: paths, globs (``**`` for any depth), datasets.
        stream: read datasets as streams, without fetching them whole first.

    Raises:
        EverlongError: a pattern matches nothing, or a file has another ending.
    """
    found: dict[str, Input] = {}
    try:
        for pattern in patterns:
            for each in _inputs(pattern, stream):
                found.setdefault(each.key, each)
    except OSError as error:
        raise unreadable(error) from error
    return list(found.values())


def unreadable(error: OSError) -> EverlongError:
    """The error for a file or folder that the system does not give."""
    return EverlongError(f"{error.filename} cannot be read: {error.strerror}")


def _inputs(pattern: str, stream: bool) -> Iterator[Input]:
    place = os.path.expanduser(pattern)
    if os.path.exists(place):
        paths = [place]
    else:
        dataset = _dataset(place, stream)
        if dataset is not None:
            yield dataset
            return
        paths = sorted(glob.glob(place, recursive=True))
    if not paths:
        raise EverlongError(
            f"nothing matches {pattern!r}: give files, folders or globs of {ALLOWED}, or a Hugging Face dataset as "
            "owner/name[:configuration[:split]]"
        )
    files = [file for path in map(Path, paths) for file in _files(path, pattern)]
    if not files:
        raise EverlongError(f"{pattern!r} holds no {ALLOWED} files: name a folder that does")
    for file in files:
        ending = ending_of(file)
        assert ending is not None
        yield FORMATS[ending](file)


def ending_of(path: Path) -> str | None:
    """The format of a file by its name, None for one that is not read."""
    name = path.name.lower()
    for compression in COMPRESSIONS:
        if name.endswith(compression):
            ending = Path(name.removesuffix(compression)).suffix
            return ending if ending in COMPRESSIBLE else None
    return path.suffix.lower() if path.suffix.lower() in FORMATS else None


def _dataset(place: str, stream: bool) -> Input | None:
    match = _DATASET.fullmatch(place)
    if match is None or any(character in match["place"] for character in "*?[") or ending_of(Path(place)):
        return None
    folder = ":" in place and os.path.isdir(match["place"])
    if not folder and not _HUB_ID.fullmatch(match["place"]):
        return None
    from everlong.data.dataset import Dataset

    return Dataset(
        Path(match["place"]) if folder else match["place"],
        configuration=match["configuration"] or None,
        split=match["split"] or "train",
        stream=stream,
    )


def _files(path: Path, pattern: str) -> Iterator[Path]:
    if path.is_dir():
        yield from _walk(path)
    elif ending_of(path):
        yield path
    else:
        raise EverlongError(f"{path} is no {ALLOWED} file: convert it, or leave it out of {pattern!r}")


def _walk(folder: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        raise error  # os.walk would pass over a folder that cannot be listed

    visited: set[str] = set()  # links are followed, and may form a circle
    for root, folders, names in os.walk(folder, onerror=fail, followlinks=True):
        visited.add(os.path.realpath(root))
        inner = (name for name in sorted(folders) if not name.startswith(".") and name != "__pycache__")
        folders[:] = [name for name in inner if os.path.realpath(os.path.join(root, name)) not in visited]
        for name in sorted(names):
            path = Path(root, name)
            if name.startswith(".") or not ending_of(path):
                continue
            if not path.is_file():
                raise EverlongError(f"{path} is no file (a link to nothing?): mend it, or take it out of {folder}")
            yield path


def read_documents(patterns: Sequence[str], *, text_column: str = "text", stream: bool = False) -> Documents:
    """All documents of the inputs that patterns name (see ``find_inputs``), in memory.

    Documents of nothing but white space are left out and named in ``skipped``.

    Raises:
        EverlongError: anything that cannot be read, or no document holds any text.
    """
    return collect(find_inputs(patterns, stream=stream), text_column)


def collect(
    inputs: Sequence[Input], text_column: str, advance: Callable[[int], None] = lambda units: None
) -> Documents:
    """All documents of inputs, in memory."""
    kept: list[Document] = []
    skipped: dict[str, str] = {}
    for document in documents_of(inputs, text_column, advance):
        if document.text.strip():
            kept.append(document)
        else:
            skipped[document.name] = EMPTY
    if not kept:
        raise nothing_kept(len(skipped), list(skipped))
    return Documents(tuple(kept), skipped)


def documents_of(inputs: Iterable[Input], text_column: str, advance: Callable[[int], None]) -> Iterator[Document]:
    """The documents of one input after another, the empty ones, too; holds one at a time."""
    try:
        for each in inputs:
            yield from each.documents(text_column, advance)
    except OSError as error:
        raise unreadable(error) from error


def nothing_kept(skipped: int, examples: Sequence[str]) -> EverlongError:
    """The error for inputs without any text."""
    what = f"all {skipped} documents are empty, such as {examples[0]}" if skipped else "no files given"
    return EverlongError(f"{what}: give files, folders or globs of {ALLOWED} that hold text")
