"""The shuffled data order: every row is a chunk of some document, drawn anew from all of them."""

import numpy as np
import torch

from everlong.data._permutation import permutation
from everlong.data.batch import Batch
from everlong.data.corpus import Corpus
from everlong.errors import EverlongError


class ShuffledChunks:
    """Cuts each document into consecutive chunks and shuffles them, every chunk once an epoch.

    Chunk i of a document reads tokens [iT, (i+1)T) and predicts [iT+1, (i+1)T+1); it never crosses into another
    document. What is left at a document's end is shorter than a chunk and left out, which `tokens_left_out` counts.
    Batches run on across epochs, so that there may be fewer chunks than rows.

    Args:
        corpus: the documents.
        length: T, inputs a row.
        batch_size: B, rows a batch.
        seed: of the shuffles, 0 or more.

    Attributes:
        chunks: chunks an epoch.
        tokens_left_out: tokens that no chunk reads or predicts.

    Raises:
        EverlongError: no document is longer than ``length``, or a number is out of range.
    """

    data_order = "shuffled"

    def __init__(self, corpus: Corpus, *, length: int, batch_size: int, seed: int):
        for name, value, least in (("length", length, 1), ("batch size", batch_size, 1), ("seed", seed, 0)):
            if value < least:
                raise EverlongError(f"{name} {value}: give {least} or more")
        sizes = np.array([len(document.tokens) for document in corpus.documents], dtype=np.int64)
        counts = np.maximum(sizes - 1, 0) // length
        self.chunks = int(counts.sum())
        if not self.chunks:
            longest = f"{corpus.longest.name!r} has {sizes.max()} tokens" if len(sizes) else "there is none"
            raise EverlongError(
                f"no document is longer than {length} tokens, the length of a row (the longest: {longest}): "
                "give longer --data or a smaller --context"
            )
        self.tokens_left_out = int(np.where(counts > 0, sizes - (counts * length + 1), sizes).sum())
        self.length, self.batch_size, self.seed = length, batch_size, seed
        self._documents = corpus.documents
        self._first_chunk = np.cumsum(counts) - counts  # the number of each document's first chunk
        self._order = (-1, np.empty(0, dtype=np.int64))  # the epoch that was shuffled last, and its order

    def epoch_of(self, step: int) -> int:
        """The epoch, counted from 0, to which the step's first row belongs."""
        return step * self.batch_size // self.chunks

    def batch(self, step: int) -> Batch:
        """The batch of a step, counted from 0: a function of the seed and the step alone."""
        rows, starts = [], []
        for place in range(step * self.batch_size, (step + 1) * self.batch_size):
            epoch, index = divmod(place, self.chunks)
            chunk = self._shuffled(epoch)[index]
            document = int(np.searchsorted(self._first_chunk, chunk, side="right")) - 1
            start = int(chunk - self._first_chunk[document]) * self.length
            rows.append(self._documents[document].tokens[start : start + self.length + 1])
            starts.append(start == 0)
        tokens = torch.from_numpy(np.stack(rows).astype(np.int64))
        return Batch(
            tokens=tokens[:, :-1].contiguous(),
            targets=tokens[:, 1:].contiguous(),
            starts=torch.tensor(starts),
            rows=torch.arange(self.batch_size),
        )

    def _shuffled(self, epoch: int) -> np.ndarray:
        if self._order[0] != epoch:
            self._order = (epoch, permutation(self.chunks, self.seed, epoch))
        return self._order[1]
