"""What every input is: something that text is read from, document by document."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

from everlong.data.documents import Document
from everlong.errors import EverlongError

COMPRESSION_RATIO = 4  # of text, about: only to tell small inputs from large ones


class Input(ABC):
    """A file or a dataset. Reading is strict: what cannot be read is an error that names file and place.

    Attributes:
        name: of the input; the names of its documents begin with it.
        key: the same for the same input, however it was named.
    """

    name: str
    key: str

    @property
    @abstractmethod
    def size(self) -> int | None:
        """How far ``advance`` counts while its documents are read; None: not known beforehand."""

    @property
    @abstractmethod
    def expected_text(self) -> int | None:
        """About how many bytes of text it holds; None: not known, so perhaps very many."""

    @abstractmethod
    def digest(self, text_column: str, advance: Callable[[int], None]) -> str:
        """What its documents depend on, in hex; two inputs of one name and digest hold the same documents."""

    @abstractmethod
    def documents(self, text_column: str, advance: Callable[[int], None]) -> Iterator[Document]:
        """All its documents in order, the empty ones, too.

        Args:
            text_column: the field that holds the text, where documents have fields.
            advance: called with the number of units of ``size`` just read.

        Raises:
            EverlongError: anything that cannot be read.
        """


class FileInput(Input):
    """A file. Its name is the real path, relative to the working folder where it lies in it."""

    compressed = False

    def __init__(self, path: Path):
        self.path = path
        self.name, self.key = name_of(path), str(path.resolve())

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.path.stat().st_size

    @property
    def expected_text(self) -> int:
        """From the bytes on disk."""
        return self.size * (COMPRESSION_RATIO if self.compressed else 1)

    def digest(self, text_column: str, advance: Callable[[int], None]) -> str:
        """SHA-256 of the bytes on disk."""
        return file_digest(self.path, advance)


def name_of(path: Path) -> str:
    """The real path, relative to the working folder where it lies in it."""
    real, here = path.resolve(), Path.cwd().resolve()
    return (real.relative_to(here) if real.is_relative_to(here) else real).as_posix()


def file_digest(path: Path, advance: Callable[[int], None]) -> str:
    """SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            advance(len(block))
    return digest.hexdigest()


def decode(raw: bytes, where: str, offset: int = 0) -> str:
    """Strict UTF-8 without its byte order mark; ``offset`` is where ``raw`` begins in the file."""
    try:
        return raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise EverlongError(
            f"{where} is not UTF-8 at byte {offset + error.start} (0x{raw[error.start]:02x}): re-encode it as UTF-8"
        ) from error


def checked_text(value: object, column: str, where: str) -> str:
    """The text of a field.

    Raises:
        EverlongError: it is null, no text, or text that no encoding can write.
    """
    if not isinstance(value, str):
        kind = "null" if value is None else f"of type {type(value).__name__}"
        raise EverlongError(f"{where}: column {column!r} is {kind}, not text: mend it, or choose another --text-column")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:  # JSON can escape half of a surrogate pair, which no encoding can write
        raise EverlongError(f"{where}: column {column!r} has half a character at {error.start}: repair it") from error
    return value


def no_column(where: str, column: str, present: list[str]) -> EverlongError:
    """The error for a column that is not there."""
    return EverlongError(f"{where} has no column {column!r}; it has {sorted(present)}: choose one with --text-column")
