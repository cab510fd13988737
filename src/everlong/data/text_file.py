"""A text file is one document."""

from collections.abc import Callable, Iterator
from pathlib import Path

from everlong.data._compression import COMPRESSIONS, blocks
from everlong.data._input import FileInput, decode
from everlong.data.documents import Document


class TextFile(FileInput):
    """Text in strict UTF-8, kept as it is, line ends included; only a byte order mark is dropped."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.compressed = path.suffix.lower() in COMPRESSIONS

    def documents(self, text_column: str, advance: Callable[[int], None]) -> Iterator[Document]:
        """The one document, named like the file."""
        yield Document(self.name, decode(b"".join(blocks(self.path, advance)), str(self.path)))
