"""Documents from files: strict in what it takes, in an order that does not depend on the machine."""

import glob
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from everlong.errors import EverlongError

ENDINGS = (".txt", ".md", ".py", ".jsonl")
ALLOWED = f"{', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"


@dataclass(frozen=True)
class Document:
    """One text that is read from its beginning; nothing is carried from one document into another."""

    name: str
    text: str


@dataclass(frozen=True)
class Documents:
    """What a source gave, in its order, and what it left out.

    Attributes:
        documents: those that hold text.
        skipped: name -> why it was left out ("empty", "not UTF-8"), so that callers can say it.
    """

    documents: tuple[Document, ...]
    skipped: Mapping[str, str]

    def __iter__(self) -> Iterator[Document]:
        return iter(self.documents)

    def __len__(self) -> int:
        return len(self.documents)


def read_documents(patterns: Sequence[str], *, text_column: str = "text") -> Documents:
    """Reads files, folders and globs: a .txt, .md or .py file is one document, every line of a .jsonl file is one.

    Patterns are taken in the given order, what a folder or glob holds in sorted order, and a file that is reached twice
    (by a link, too) is read once. Folders are walked to any depth for the four endings; hidden files, hidden folders
    and ``__pycache__`` in them are passed over, and so are files with other endings. Text is strict UTF-8 and kept as
    it is, line ends included; only a byte order mark is dropped. Documents of nothing but white space are left out and
    named in ``skipped``; blank lines between those of a .jsonl file are no documents.

    Args:
        patterns: paths or globs (``**`` for any depth).
        text_column: the field of a .jsonl line that holds its text.

    Returns:
        The documents. A name is the real path, relative to the working folder where the file lies in it; a .jsonl
        document adds its line, counted from 1: ``logs/chat.jsonl:3``.

    Raises:
        EverlongError: a pattern matches nothing, a file has another ending or is not UTF-8, a line is not a JSON object
            with the column, or no document holds any text.
    """
    kept: list[Document] = []
    skipped: dict[str, str] = {}
    try:
        for path in _files(patterns):
            for document in _read(path, text_column):
                if document.text.strip():
                    kept.append(document)
                else:
                    skipped[document.name] = "empty"
    except OSError as error:
        raise EverlongError(f"{error.filename} cannot be read: {error.strerror}") from error
    if not kept:
        empty = (
            f"all {len(skipped)} documents are empty, such as {next(iter(skipped))}" if skipped else "no files given"
        )
        raise EverlongError(f"{empty}: give files, folders or globs of {ALLOWED} that hold text")
    return Documents(tuple(kept), skipped)


def _files(patterns: Sequence[str]) -> Iterator[Path]:
    seen: set[str] = set()
    for pattern in patterns:
        for path in _matches(pattern):
            real = os.path.realpath(path)
            if real not in seen:
                seen.add(real)
                yield path


def _matches(pattern: str) -> list[Path]:
    """The files that one pattern stands for; a name that exists is never taken for a glob."""
    place = os.path.expanduser(pattern)
    found = [place] if os.path.exists(place) else sorted(glob.glob(place, recursive=True))
    if not found:
        raise EverlongError(f"nothing matches {pattern!r}: give files, folders or globs of {ALLOWED}")
    files: list[Path] = []
    for path in map(Path, found):
        if path.is_dir():
            files.extend(_walk(path))
        elif path.suffix.lower() in ENDINGS:
            files.append(path)
        else:
            raise EverlongError(f"{path} is no {ALLOWED} file: convert it, or leave it out of {pattern!r}")
    if not files:
        raise EverlongError(f"{pattern!r} holds no {ALLOWED} files: name a folder that does")
    return files


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
            if not name.startswith(".") and path.suffix.lower() in ENDINGS and path.is_file():
                yield path


def _read(path: Path, text_column: str) -> Iterator[Document]:
    real, here = path.resolve(), Path.cwd().resolve()
    name = (real.relative_to(here) if real.is_relative_to(here) else real).as_posix()
    if path.suffix.lower() != ".jsonl":
        yield Document(name, _decode(path.read_bytes(), path))
        return
    offset, lines = 0, 0
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            line = _decode(raw, path, offset)
            offset += len(raw)
            if line.strip():
                lines += 1
                yield Document(f"{name}:{number}", _column(line, text_column, f"{path} line {number}"))
    if not lines:
        yield Document(name, "")  # so that a file without lines is named among the empty ones


def _decode(raw: bytes, path: Path, offset: int = 0) -> str:
    try:
        return raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise EverlongError(
            f"{path} is not UTF-8 at byte {offset + error.start} (0x{raw[error.start]:02x}): re-encode it as UTF-8"
        ) from error


def _column(line: str, column: str, where: str) -> str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise EverlongError(f"{where} is not JSON ({error}): a .jsonl file has one JSON object a line") from error
    if not isinstance(row, dict):
        raise EverlongError(f"{where} is a JSON {type(row).__name__}: a .jsonl file has one JSON object a line")
    if column not in row:
        raise EverlongError(f"{where} has no column {column!r}; it has {sorted(row)}: choose one with --text-column")
    text = row[column]
    if not isinstance(text, str):
        raise EverlongError(f"{where}: column {column!r} is a {type(text).__name__}, not text: choose another column")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can escape half of a surrogate pair, which no encoding can write
        raise EverlongError(f"{where}: column {column!r} has half a character at {error.start}: repair it") from error
    return text
