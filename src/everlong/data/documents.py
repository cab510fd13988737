"""Documents, and what a source of them gave."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

EMPTY = "empty"  # why a document without text is left out


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
