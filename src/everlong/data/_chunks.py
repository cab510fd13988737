"""What the data orders share: documents cut into chunks, and a batch of chunks."""

from abc import ABC, abstractmethod

import numpy as np
import torch

from everlong.data.batch import Batch
from everlong.data.corpus import Corpus
from everlong.errors import EverlongError


class Chunks(ABC):
    """Each document cut into consecutive chunks; a data order says which of them each row reads.

    Chunk i of a document reads tokens [iT, (i+1)T) and predicts [iT+1, (i+1)T+1); it never crosses into another
    document. What is left at a document's end is shorter than a chunk and left out; documents without a
    chunk are left out whole.

    Args:
        corpus: the documents.
        length: T, inputs a row.
        batch_size: B, rows a batch.
        seed: of the order, 0 or more.

    Attributes:
        chunks: chunks an epoch.
        documents_left_out: documents of no more than ``length`` tokens.
        tokens_left_out: tokens that no chunk reads or predicts, theirs among them.

    Raises:
        EverlongError: no document is longer than ``length``, or a number is out of range.
    """

    def __init__(self, corpus: Corpus, *, length: int, batch_size: int, seed: int):
        check_order(length, batch_size, seed)
        sizes = corpus.sizes
        self._counts = np.maximum(sizes - 1, 0) // length  # chunks of each document
        self.chunks = int(self._counts.sum())
        if not self.chunks:
            longest = f"{corpus.longest.name!r} has {sizes.max()} tokens" if len(sizes) else "there is none"
            raise EverlongError(
                f"no document is longer than {length} tokens, the length of a row (the longest: {longest}): "
                "give longer --data or a smaller --context"
            )
        self.documents_left_out = int((self._counts == 0).sum())
        self.tokens_left_out = int(np.where(self._counts > 0, sizes - (self._counts * length + 1), sizes).sum())
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self._documents = corpus.documents

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """The batch of a step, counted from 0, or only some of its rows; a function of the seed and the step alone."""
        wanted = range(self.batch_size) if rows is None else rows
        self._lay_out(step)
        return self._read(wanted, [self._place(step, row) for row in wanted])

    def _lay_out(self, step: int) -> None:  # noqa: B027  an order may have nothing to prepare
        """Prepares whatever ``_place`` needs for a step."""

    @abstractmethod
    def _place(self, step: int, row: int) -> tuple[int, int]:
        """The document that a row reads at a step, and which chunk of it."""

    def _read(self, numbers: range, places: list[tuple[int, int]]) -> Batch:
        rows, starts = [], []
        for document, chunk in places:
            start = chunk * self.length
            rows.append(self._documents[document].tokens[start : start + self.length + 1])
            starts.append(chunk == 0)
        tokens = torch.from_numpy(np.stack(rows).astype(np.int64))
        return Batch(
            tokens=tokens[:, :-1].contiguous(),
            targets=tokens[:, 1:].contiguous(),
            starts=torch.tensor(starts),
            rows=torch.arange(numbers.start, numbers.stop),
        )


def check_order(length: int, batch_size: int, seed: int) -> None:
    """Raises an error for a number out of range."""
    for name, value, least in (("length", length, 1), ("batch size", batch_size, 1), ("seed", seed, 0)):
        if value < least:
            raise EverlongError(f"{name} {value}: give {least} or more")
