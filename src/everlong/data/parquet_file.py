"""Each row of a parquet file is a document."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from everlong.data._input import FileInput, checked_text, no_column
from everlong.data.documents import Document
from everlong.errors import EverlongError

ROWS_AT_A_TIME = 1024


class ParquetFile(FileInput):
    """The text is one column; other columns are not read. Checksums are verified where the file has them."""

    compressed = True

    def documents(self, text_column: str, advance: Callable[[int], None]) -> Iterator[Document]:
        """A document is named after its row, counted from 1: ``books.parquet:3``."""
        file = _open(self.path)
        if text_column not in file.schema_arrow.names:
            raise no_column(str(self.path), text_column, file.schema_arrow.names)
        left = self.size
        row = 0
        for group in range(file.num_row_groups):
            for value in _values(file, group, text_column, f"{self.path} row group {group + 1}", row):
                row += 1
                text = checked_text(value, text_column, f"{self.path} row {row} (row group {group + 1})")
                yield Document(f"{self.name}:{row}", text)
            share = self.size // file.num_row_groups
            left -= share
            advance(share)
        advance(left)
        if not row:
            yield Document(self.name, "")  # so that a file without rows is named among the empty ones


def _open(path: Path) -> Any:
    import pyarrow
    from pyarrow import parquet

    try:
        return parquet.ParquetFile(path, page_checksum_verification=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise EverlongError(f"{path} is no whole parquet file ({_line(error)}): fetch or write it again") from error


def _values(file: Any, group: int, column: str, where: str, row: int) -> Iterator[object]:
    """The values of a row group, all of them.

    A column of strings need not be UTF-8: each value is converted by itself, so that the row can be named.
    """
    import pyarrow

    expected, count = file.metadata.row_group(group).num_rows, 0
    try:
        for batch in file.iter_batches(ROWS_AT_A_TIME, row_groups=[group], columns=[column]):
            for scalar in batch.column(0):
                count += 1
                yield scalar.as_py()
    except UnicodeDecodeError as error:
        raise EverlongError(
            f"{where}, row {row + count}: column {column!r} is not UTF-8 at its byte {error.start}: re-encode it"
        ) from error
    except (pyarrow.ArrowException, OSError) as error:
        raise EverlongError(
            f"{where} is damaged after row {row + count} ({_line(error)}): fetch or write the file again"
        ) from error
    if count != expected:
        raise EverlongError(f"{where} gives {count} rows, not the {expected} that the file promises: write it again")


def _line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
