"""The contiguous data order: every row goes on where it stood in the batch before, document after document."""

import heapq
from bisect import bisect_right
from itertools import count

from everlong.data._chunks import Chunks
from everlong.data._permutation import permutation
from everlong.data.corpus import Corpus
from everlong.errors import EverlongError


class ContiguousStreams(Chunks):
    """Row r of batch t + 1 reads the chunk after that of row r of batch t, or begins another document.

    The documents of an epoch are shuffled, and epoch follows epoch in one endless list. The row that is free first
    takes the next document of the list, whole and from its beginning (of several, the row with the smallest number); so
    no row ever waits. Every chunk comes once an epoch; rows finish at different times, and the first rows of an epoch
    begin while the last ones of the epoch before are still reading.

    Raises:
        EverlongError: as for ``Chunks``; or fewer documents are long enough than there are rows, so that several rows
            would read one document side by side.
    """

    data_order = "contiguous"

    def __init__(self, corpus: Corpus, *, length: int, batch_size: int, seed: int):
        super().__init__(corpus, length=length, batch_size=batch_size, seed=seed)
        self._cut = self._counts.nonzero()[0]  # documents with at least one chunk
        if len(self._cut) < batch_size:
            raise EverlongError(
                f"{batch_size} rows would read {len(self._cut)} documents of more than {length} tokens in contiguous "
                "order, several rows the same one: give more --data or a smaller --batch-size"
            )
        self._free = [(0, row) for row in range(batch_size)]  # a heap: the step at which a row ends its last document
        self._begun: list[list[int]] = [[] for _ in range(batch_size)]  # of each row: the steps at which it begins one
        self._documents_of: list[list[int]] = [[] for _ in range(batch_size)]  # and which one
        self._list = (document for epoch in count() for document in self._shuffled(epoch))

    def _lay_out(self, step: int) -> None:
        while self._free[0][0] <= step:  # lay out until every row has something to read at the step
            begin, row = self._free[0]
            document = next(self._list)
            self._begun[row].append(begin)
            self._documents_of[row].append(document)
            heapq.heapreplace(self._free, (begin + int(self._counts[document]), row))

    def _place(self, step: int, row: int) -> tuple[int, int]:
        index = bisect_right(self._begun[row], step) - 1
        return self._documents_of[row][index], step - self._begun[row][index]

    def _shuffled(self, epoch: int) -> list[int]:
        return self._cut[permutation(len(self._cut), self.seed, epoch)].tolist()
