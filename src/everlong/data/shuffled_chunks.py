"""The shuffled data order: every row is a chunk of some document, drawn anew from all of them."""

import numpy as np

from everlong.data._chunks import Chunks
from everlong.data._permutation import permutation
from everlong.data.corpus import Corpus


class ShuffledChunks(Chunks):
    """Shuffles all chunks of all documents, every chunk once an epoch.

    Batches run on across epochs, so that there may be fewer chunks than rows.
    """

    data_order = "shuffled"

    def __init__(self, corpus: Corpus, *, length: int, batch_size: int, seed: int):
        super().__init__(corpus, length=length, batch_size=batch_size, seed=seed)
        self._first_chunk = np.cumsum(self._counts) - self._counts  # the number of each document's first chunk
        self._order = (-1, np.empty(0, dtype=np.int64))  # the epoch that was shuffled last, and its order

    def epoch_of(self, step: int) -> int:
        """The epoch, counted from 0, to which the step's first row belongs."""
        return step * self.batch_size // self.chunks

    def _place(self, step: int, row: int) -> tuple[int, int]:
        index = step * self.batch_size + row
        epoch, place = divmod(index, self.chunks)
        chunk = self._shuffled(epoch)[place]
        document = int(np.searchsorted(self._first_chunk, chunk, side="right")) - 1
        return document, int(chunk - self._first_chunk[document])

    def _shuffled(self, epoch: int) -> np.ndarray:
        if self._order[0] != epoch:
            self._order = (epoch, permutation(self.chunks, self.seed, epoch))
        return self._order[1]
