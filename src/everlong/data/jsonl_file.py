"""Each line of a .jsonl file is a document."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from everlong.data._compression import COMPRESSIONS, lines
from everlong.data._input import FileInput, checked_text, decode, no_column
from everlong.data.documents import Document
from everlong.errors import EverlongError


class JsonlFile(FileInput):
    """One JSON object a line, with the text in one of its fields; blank lines are no documents."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.compressed = path.suffix.lower() in COMPRESSIONS

    def documents(self, text_column: str, advance: Callable[[int], None]) -> Iterator[Document]:
        """A document is named after its line, counted from 1: ``logs/chat.jsonl:3``."""
        offset, documents = 0, 0
        for number, raw in enumerate(lines(self.path, advance), start=1):
            where = f"{self.path} line {number}"
            line = decode(raw, where, offset)
            offset += len(raw)
            if line.strip():
                documents += 1
                yield Document(f"{self.name}:{number}", _text(line, text_column, where))
        if not documents:
            yield Document(self.name, "")  # so that a file without lines is named among the empty ones


def _text(line: str, column: str, where: str) -> str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise EverlongError(f"{where} is not JSON ({error}): a .jsonl file has one JSON object a line") from error
    if not isinstance(row, dict):
        raise EverlongError(f"{where} is a JSON {type(row).__name__}: a .jsonl file has one JSON object a line")
    if column not in row:
        raise no_column(where, column, list(row))
    return checked_text(row[column], column, where)
