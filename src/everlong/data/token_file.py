"""Token files: a corpus on disk, mapped into memory, whole or not there at all.

tokens      the ids of all documents end to end, uint16 or uint32, little-endian
ends        where each document ends in them, int64
names       the names end to end, in UTF-8
name_ends   where each name ends, int64
header.json what each of these four must be (bytes and SHA-256), and what was left out; written last
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from shutil import rmtree
from typing import Any

import numpy as np

from everlong.data.corpus import StoredDocuments, TokenDocument, token_dtype

FORMAT = 1
PARTS = ("tokens", "ends", "names", "name_ends")


class TornTokenFile(Exception):
    """A token file that is not what its header says; the message says how."""


class TokenFile(StoredDocuments):
    """A token file, opened. Only what is read of it is in memory, and the system can drop that again.

    Args:
        folder: where it lies.

    Attributes:
        facts: what the writer noted down in its header.

    Raises:
        TornTokenFile: a part is missing, has another size, or another checksum.
    """

    def __init__(self, folder: Path):
        try:
            header = json.loads((folder / "header.json").read_text(encoding="utf-8"))
            known = header["format"] == FORMAT
            self.facts: Mapping[str, Any] = header["facts"]
            for name in PARTS:
                _verify(folder / name, header["parts"][name])
            dtype = np.dtype(header["dtype"])
            self._content = dtype.str + "".join(header["parts"][name]["sha256"] for name in ("tokens", "ends"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise TornTokenFile(f"its header cannot be read ({error})") from error
        if not known:
            raise TornTokenFile(f"it has format {header['format']}, not {FORMAT}")
        self._vocabulary = int(header["vocabulary"])
        self._tokens = _mapped(folder / "tokens", dtype)
        self._ends, self._name_ends = (_mapped(folder / name, np.dtype("<i8")) for name in ("ends", "name_ends"))
        self._names = _mapped(folder / "names", np.dtype("u1"))
        self._sizes = np.diff(self._ends, prepend=0)

    @property
    def sizes(self) -> np.ndarray:
        """Tokens of each document, [D] int64."""
        return self._sizes

    @property
    def vocabulary(self) -> int:
        """One more than the largest token."""
        return self._vocabulary

    @property
    def identity(self) -> str:
        """Of the checksums in the header."""
        return hashlib.sha256(self._content.encode()).hexdigest()

    def document(self, place: int) -> TokenDocument:
        """The document at a place; its tokens are a view of the file."""
        name = self._names[self._name_ends[place - 1] if place else 0 : self._name_ends[place]].tobytes()
        tokens = self._tokens[self._ends[place - 1] if place else 0 : self._ends[place]]
        return TokenDocument(name.decode("utf-8", errors="surrogateescape"), tokens)


def write_token_file(
    folder: Path, documents: Iterable[TokenDocument], vocab_size: int, facts: Mapping[str, Any]
) -> None:
    """Writes documents as they come; the folder appears whole or not at all, and survives a crash of the machine.

    Nobody else may write the same folder meanwhile; one that is there is replaced.

    Args:
        folder: where the token file is to lie.
        documents: at least one, each with tokens; names differ.
        vocab_size: of the tokenizer, which decides how wide a token is.
        facts: anything for the header that JSON can hold; read when all documents are written.

    Raises:
        OSError: the disk is full, or the folder cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left in folder.parent.glob(f".{folder.name}.*"):  # by a process that was killed
        rmtree(left, ignore_errors=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    temporary.mkdir()
    try:
        header = _write_parts(temporary, documents, token_dtype(vocab_size))
        content = json.dumps({**header, "facts": dict(facts)}, indent=2).encode()
        with (temporary / "header.json").open("wb") as file:
            file.write(content)
            _flush(file)
        _flush_folder(temporary)
        rmtree(folder, ignore_errors=True)
        temporary.rename(folder)
        _flush_folder(folder.parent)
    finally:
        rmtree(temporary, ignore_errors=True)


def _write_parts(folder: Path, documents: Iterable[TokenDocument], dtype: np.dtype) -> dict[str, Any]:
    width = dtype.newbyteorder("<")
    end, name_end, largest = 0, 0, -1
    with ExitStack() as stack:
        parts = {name: stack.enter_context(_Part(folder / name)) for name in PARTS}
        for document in documents:
            name = document.name.encode("utf-8", errors="surrogateescape")
            end, name_end = end + len(document.tokens), name_end + len(name)
            largest = max(largest, int(document.tokens.max()))
            parts["tokens"].write(document.tokens.astype(width).tobytes())
            parts["ends"].write(end.to_bytes(8, "little"))
            parts["names"].write(name)
            parts["name_ends"].write(name_end.to_bytes(8, "little"))
        described = {name: part.finish() for name, part in parts.items()}
    return {"format": FORMAT, "dtype": width.str, "vocabulary": largest + 1, "parts": described}


class _Part:
    """A file that knows its size and checksum when it is written."""

    def __init__(self, path: Path):
        self._file, self._digest, self._size = path.open("wb", buffering=1 << 20), hashlib.sha256(), 0

    def write(self, content: bytes) -> None:
        self._file.write(content)
        self._digest.update(content)
        self._size += len(content)

    def finish(self) -> dict[str, Any]:
        _flush(self._file)
        return {"bytes": self._size, "sha256": self._digest.hexdigest()}

    def __enter__(self) -> "_Part":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _verify(path: Path, described: Mapping[str, Any]) -> None:
    if not path.is_file():
        raise TornTokenFile(f"{path.name} is missing")
    size = path.stat().st_size
    if size != described["bytes"]:
        raise TornTokenFile(f"{path.name} has {size} bytes, not {described['bytes']}")
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != described["sha256"]:
            raise TornTokenFile(f"{path.name} has another checksum than its header says")


def _mapped(path: Path, dtype: np.dtype) -> np.ndarray:
    return np.memmap(path, dtype=dtype, mode="r").view(np.ndarray)  # a plain array is cut into views faster


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _flush_folder(folder: Path) -> None:
    if os.name == "posix":  # elsewhere a folder cannot be opened
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
