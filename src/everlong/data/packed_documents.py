"""The packed data order: rows filled with whole documents, one after another."""

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np
import torch

from everlong.data._chunks import check_order
from everlong.data._permutation import permutation
from everlong.data.batch import Batch
from everlong.data.corpus import Corpus
from everlong.errors import EverlongError

OPEN_ROWS = 256  # that a document is tried in: more fill the rows a little better, and later


@dataclass(frozen=True)
class _Epoch:
    """The rows of an epoch: row r holds the pieces ``bounds[r]`` to ``bounds[r + 1]``."""

    documents: np.ndarray
    begins: np.ndarray  # where in its document a piece begins
    bounds: np.ndarray


class PackedDocuments:
    """Reads documents of any length, short ones whole and several in a row; every token is predicted once an epoch.

    The documents of an epoch are shuffled; each goes into the fullest of the open rows that it fits in (best fit). One
    of more inputs than a row has is cut into pieces as long as a row, and what is left of it is packed like a document.
    A document's last token is predicted and never read, so that no target lies in another document. What stays free in
    a row is at its beginning, is read as token 0 and not scored: so the state at a row's end is a document's.
    ``resets`` is True where a piece begins inside a row; at the beginning of a row, ``starts`` says it.

    Args:
        corpus: the documents.
        length: T, inputs a row.
        batch_size: B, rows a batch.
        seed: of the order, 0 or more.

    Attributes:
        documents_left_out: documents that have no second token to predict.
        tokens_left_out: their tokens.

    Raises:
        EverlongError: no document has two tokens, or a number is out of range.
    """

    data_order = "packed"

    def __init__(self, corpus: Corpus, *, length: int, batch_size: int, seed: int):
        check_order(length, batch_size, seed)
        sizes = corpus.sizes
        self._packed = np.flatnonzero(sizes > 1)
        if not len(self._packed):
            raise EverlongError("no document has more than one token, so there is nothing to predict: give more --data")
        self.documents_left_out = len(sizes) - len(self._packed)
        self.tokens_left_out = int(sizes[sizes <= 1].sum())
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self._documents, self._sizes = corpus.documents, sizes
        self._first_rows = [0]  # of each epoch laid out so far, and of the one after them
        self._laid_out: tuple[int, _Epoch] | None = None  # the epoch that was read last

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """The batch of a step, counted from 0, or only some of its rows; a function of the seed and the step alone."""
        wanted = range(self.batch_size) if rows is None else rows
        B, T = len(wanted), self.length
        inputs, targets = np.zeros((B, T), dtype=np.int64), np.zeros((B, T), dtype=np.int64)
        scored, resets = np.zeros((B, T), dtype=np.bool_), np.zeros((B, T), dtype=np.bool_)
        starts = np.zeros(B, dtype=np.bool_)
        for index, row in enumerate(wanted):
            pieces = self._pieces(step * self.batch_size + row)
            at = T - sum(count for _, _, count in pieces)
            scored[index, at:] = True
            for document, begin, count in pieces:
                tokens = self._documents[document].tokens[begin : begin + count + 1]
                inputs[index, at : at + count], targets[index, at : at + count] = tokens[:-1], tokens[1:]
                if at:
                    resets[index, at] = True
                else:
                    starts[index] = begin == 0
                at += count
        return Batch(
            tokens=torch.from_numpy(inputs),
            targets=torch.from_numpy(targets),
            loss_mask=torch.from_numpy(scored),
            starts=torch.from_numpy(starts),
            resets=torch.from_numpy(resets),
            rows=torch.arange(wanted.start, wanted.stop),
        )

    def _pieces(self, row: int) -> list[tuple[int, int, int]]:
        """(document, where in it, inputs) of a row, counted from the beginning of the first epoch."""
        while row >= self._first_rows[-1]:
            rows = len(self._epoch(len(self._first_rows) - 1).bounds) - 1
            self._first_rows.append(self._first_rows[-1] + rows)
        number = bisect_left(self._first_rows, row + 1) - 1
        epoch, row = self._epoch(number), row - self._first_rows[number]
        pieces = []
        for place in range(epoch.bounds[row], epoch.bounds[row + 1]):
            document, begin = int(epoch.documents[place]), int(epoch.begins[place])
            pieces.append((document, begin, min(int(self._sizes[document]) - 1 - begin, self.length)))
        return pieces

    def _epoch(self, number: int) -> _Epoch:
        if self._laid_out is None or self._laid_out[0] != number:
            self._laid_out = number, self._pack(number)
        return self._laid_out[1]

    def _pack(self, number: int) -> _Epoch:
        rows: list[list[tuple[int, int]]] = []
        open_rows: list[tuple[int, int]] = []  # (inputs free, row), in ascending order
        for document in self._packed[permutation(len(self._packed), self.seed, number)].tolist():
            inputs = int(self._sizes[document]) - 1
            whole = inputs // self.length * self.length
            rows.extend([(document, begin)] for begin in range(0, whole, self.length))
            if whole == inputs:
                continue
            place = bisect_left(open_rows, (inputs - whole, -1))
            if place < len(open_rows):
                free, row = open_rows.pop(place)
            else:
                free, row = self.length, len(rows)
                rows.append([])
            rows[row].append((document, whole))
            if free > inputs - whole:
                insort(open_rows, (free - (inputs - whole), row))
                if len(open_rows) > OPEN_ROWS:
                    open_rows.pop(0)
        shuffled = [rows[row] for row in permutation(len(rows), self.seed, number, 1).tolist()]
        bounds = np.cumsum([0, *map(len, shuffled)])
        flat = np.array([piece for row in shuffled for piece in row], dtype=np.int64)
        return _Epoch(flat[:, 0], flat[:, 1], bounds)
