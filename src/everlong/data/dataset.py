"""A Hugging Face dataset: each row is a document, read from a mapped copy or as a stream."""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from everlong.data._hub import asked_once
from everlong.data._input import Input, checked_text, file_digest, name_of, no_column
from everlong.data.documents import Document
from everlong.errors import EverlongError

_FIRST = re.compile(r"(?P<split>.+)\[:(?P<count>\d+)\]")


class Dataset(Input):
    """One split of a dataset, by the loaders of the library ``datasets``, which run no code of the dataset's.

    Args:
        place: an id ``owner/name`` of the hub, or a local folder of a dataset.
        configuration: its name; None: the dataset's only or default one.
        split: in the library's terms, such as ``train`` or ``train[:10%]``; of a stream, ``train[:1000]`` is the first
            thousand rows and the only part that can be taken.
        stream: read row by row over the network, without fetching and keeping the whole split first.
    """

    def __init__(self, place: str | Path, *, configuration: str | None, split: str, stream: bool):
        self.place, self.configuration, self.split, self.stream = place, configuration, split, stream
        rest = f":{configuration or ''}:{split}"
        self.name = f"{name_of(place) if isinstance(place, Path) else place}{rest}"
        self.key = f"{place.resolve() if isinstance(place, Path) else place}{rest}"

    @property
    def size(self) -> int | None:
        """Rows, where they are all there."""
        return None if self.stream else self._rows.num_rows

    @property
    def expected_text(self) -> int | None:
        """Bytes of the whole table, where it is there."""
        return None if self.stream else self._rows.data.nbytes

    def digest(self, text_column: str, advance: Callable[[int], None]) -> str:
        """Of a local folder, SHA-256 of its files; of the hub, of the mapped texts, or the revision of a stream."""
        if isinstance(self.place, Path):
            return self._folder_digest
        if not self.stream:
            digest = hashlib.sha256()
            for document in self.documents(text_column, advance):
                text = document.text.encode("utf-8")
                digest.update(f"{len(text)} ".encode() + text)
            return digest.hexdigest()
        return self._revision

    def documents(self, text_column: str, advance: Callable[[int], None]) -> Iterator[Document]:
        """A document is named after its row, counted from 0 as the library does: ``owner/name:en:train:17``."""
        number = 0
        for row in self.rows((text_column,)):
            yield Document(f"{self.name}:{number}", row[text_column])
            number += 1
            advance(1)
        if not number:
            yield Document(self.name, "")  # so that a split without rows is named among the empty ones

    def rows(self, columns: Sequence[str]) -> Iterator[dict[str, str]]:
        """Some columns of each row, which must be text.

        Raises:
            EverlongError: the dataset cannot be loaded, has no such column, or something else than text in it.
        """
        rows = self._rows
        if rows.column_names is not None:
            for column in columns:
                if column not in rows.column_names:
                    raise no_column(f"dataset {self.name}", column, rows.column_names)
            rows = rows.select_columns(list(columns))
        for number, row in enumerate(self._each(rows)):
            where = f"dataset {self.name} row {number}"
            for column in columns:
                if column not in row:
                    raise no_column(where, column, list(row))
            yield {column: checked_text(row[column], column, where) for column in columns}

    def _each(self, rows: Any) -> Iterator[dict[str, Any]]:
        number = 0
        try:
            for row in rows:
                yield row
                number += 1
        except Exception as error:  # whatever the loader of the dataset's own format raises
            raise self._failed(f"cannot be read after {number} rows", error) from error

    @cached_property
    def _rows(self) -> Any:
        """A Dataset or an IterableDataset of the library."""
        from datasets import config, load_dataset

        split, first = self.split, None
        if self.stream and (part := _FIRST.fullmatch(split)):
            split, first = part["split"], int(part["count"])
        place, prepared = str(self.place), None
        if isinstance(self.place, Path):
            # The library (5.2) finds what it prepared from a folder again by its names alone, though the files in it
            # have changed: here each content has a place of its own.
            place, prepared = str(self.place.resolve()), str(Path(config.HF_DATASETS_CACHE, self._folder_digest[:32]))
        try:
            with nullcontext() if isinstance(self.place, Path) else asked_once():
                rows = load_dataset(
                    place,
                    self.configuration,
                    split=split,
                    streaming=self.stream,
                    cache_dir=prepared,
                    revision=self._revision if self.stream and isinstance(self.place, str) else None,
                )
        except Exception as error:  # the hub, the network and every loader have errors of their own
            raise self._failed("cannot be loaded", error) from error
        return rows if first is None else rows.take(first)

    @cached_property
    def _revision(self) -> str:
        """The hub's newest commit when it was first asked; a stream is read as of it, so as its digest says."""
        from huggingface_hub import HfApi

        assert isinstance(self.place, str)
        try:
            with asked_once():
                return str(HfApi().dataset_info(self.place).sha)
        except Exception as error:  # the hub and the network have errors of their own
            raise self._failed("cannot be asked for its revision", error) from error

    @cached_property
    def _folder_digest(self) -> str:
        assert isinstance(self.place, Path)
        files = sorted(path for path in self.place.rglob("*") if path.is_file())
        parts = [f"{path.relative_to(self.place)} {file_digest(path, lambda _: None)}" for path in files]
        return hashlib.sha256("\n".join(parts).encode("utf-8", errors="surrogateescape")).hexdigest()

    def _failed(self, what: str, error: BaseException) -> EverlongError:
        while error.__cause__ is not None:  # the library's own error says only that something went wrong
            error = error.__cause__
        line = next(iter(str(error).strip().splitlines()), type(error).__name__).rstrip(".")
        absent = "" if isinstance(self.place, Path) else f" (no file or folder here is named {self.place!r})"
        return EverlongError(
            f"dataset {self.name} {what}{absent}: {line}; give --data FILES, or owner/name[:configuration[:split]]"
        )
