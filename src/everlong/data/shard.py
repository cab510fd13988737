"""The share of one process in every batch: the rows of a batch, parted among processes without overlap or loss."""

from typing import Protocol, runtime_checkable

from everlong.data.batch import Batch
from everlong.errors import EverlongError


@runtime_checkable
class DataOrder(Protocol):
    """What every member of ``DATA_ORDERS`` is."""

    data_order: str
    length: int
    batch_size: int

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """The batch of a step, counted from 0, or only some of its rows; a function of the seed and the step alone."""
        ...


def rows_of(rank: int, processes: int, batch_size: int) -> range:
    """The rows of a batch that a process reads: as many as every other one, so that a mean of means is the mean.

    Raises:
        EverlongError: the rows cannot be parted evenly.
    """
    if not 0 <= rank < processes:
        raise EverlongError(f"rank {rank} of {processes} processes: give 0 to {processes - 1}")
    if batch_size % processes:
        raise EverlongError(
            f"--batch-size {batch_size} cannot be parted evenly among {processes} processes: give a multiple of "
            f"{processes}"
        )
    share = batch_size // processes
    return range(rank * share, (rank + 1) * share)


class Shard:
    """A data order as one process of several reads it: the same rows at every step.

    So a row that goes on from batch to batch stays with its process, and any number of processes reads the same
    batches.

    Args:
        order: of the whole batches, the same on every process.
        rank: which process this is, counted from 0.
        processes: how many there are.
    """

    def __init__(self, order: DataOrder, *, rank: int, processes: int):
        self._order = order
        self._rows = rows_of(rank, processes, order.batch_size)
        self.data_order, self.length, self.batch_size = order.data_order, order.length, len(self._rows)

    def batch(self, step: int) -> Batch:
        """This process's rows of the batch of a step, counted from 0; ``Batch.rows`` are their places in the whole."""
        return self._order.batch(step, self._rows)
