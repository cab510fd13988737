"""What each process asks a source for, in each part of a step: all rows together, without overlap or loss."""

from collections import Counter

import pytest
import torch

from everlong.data.batch import Batch, Source
from everlong.data.orders import DATA_ORDERS
from everlong.data.tokenizers import ByteTokenizer
from everlong.errors import EverlongError
from everlong.tasks.config import CopyingConfig
from everlong.tasks.copying import Copying
from everlong.tasks.source import TaskSource
from everlong.training.processes import Processes
from tests.data.test_shuffled_chunks import CORPUS, FIRSTS

ROWS = 4
SPREAD = [(1, 1), (2, 1), (4, 1), (1, 4), (2, 2)]


def order(name: str) -> Source:
    if name == "task":
        task = Copying(CopyingConfig(copy_shortest=3, copy_longest=7), ByteTokenizer(), training=True)
        return TaskSource(task, length=16, batch_size=ROWS, seed=0)
    return DATA_ORDERS[name](CORPUS, length=4, batch_size=ROWS, seed=0)


def parts_of(rank: int, processes: int, accumulation: int = 1, rows: int = ROWS) -> list[range]:
    each = Processes()
    each.rank, each.count = rank, processes
    return each.parts_of(rows, accumulation)


class Shares:
    """The source of each process, which are not one object, and the parts that it reads."""

    def __init__(self, name: str, processes: int, accumulation: int = 1):
        self.sources = [(order(name), parts_of(rank, processes, accumulation)) for rank in range(processes)]

    def batches(self, step: int) -> list[Batch]:
        return [source.batch(step, rows) for source, parts in self.sources for rows in parts]


@pytest.mark.parametrize("name", [*DATA_ORDERS, "task"])
@pytest.mark.parametrize(("processes", "accumulation"), SPREAD)
def test_the_shares_together_are_the_batch(name, processes, accumulation):
    whole, shares = order(name), Shares(name, processes, accumulation)
    for step in (0, 5, 1, 30):
        batch, parts = whole.batch(step), shares.batches(step)
        assert len(parts) == processes * accumulation
        for field in ("tokens", "targets", "starts", "rows", "resets", "loss_mask"):
            values, expected = [getattr(part, field) for part in parts], getattr(batch, field)
            assert expected is None if values[0] is None else torch.equal(torch.cat(values), expected)


@pytest.mark.parametrize(("processes", "accumulation"), SPREAD)
def test_every_chunk_is_read_once_an_epoch_by_one_process(processes, accumulation):
    """Twelve chunks in batches of four: an epoch is three steps."""
    shares = Shares("shuffled", processes, accumulation)
    for epoch in range(5):
        steps = range(3 * epoch, 3 * epoch + 3)
        read = [int(first) for step in steps for part in shares.batches(step) for first in part.tokens[:, 0]]
        assert sorted(read) == FIRSTS


@pytest.mark.parametrize(("processes", "accumulation"), SPREAD)
def test_every_predicted_token_of_packed_documents_is_scored_once_an_epoch(processes, accumulation):
    shares = Shares("packed", processes, accumulation)
    counts: Counter[int] = Counter()
    for step in range(200):
        for batch in shares.batches(step):
            assert batch.loss_mask is not None
            counts.update(batch.targets[batch.loss_mask].tolist())
    sizes = [len(document.tokens) for document in CORPUS.documents]
    assert sorted(counts) == [1000 * place + at for place, size in enumerate(sizes) for at in range(1, size)]
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_row_goes_on_with_its_document_on_its_own_process():
    shares = Shares("contiguous", 2)
    before = shares.batches(0)
    for step in range(1, 20):
        after = shares.batches(step)
        for earlier, later in zip(before, after, strict=True):
            for row in range(2):
                goes_on = int(later.tokens[row, 0]) == int(earlier.targets[row, -1])
                assert goes_on != bool(later.starts[row])
        before = after


def test_rows_that_cannot_be_shared_evenly_are_refused():
    assert [parts_of(rank, 3, 2, 12) for rank in range(3)] == [
        [range(2), range(2, 4)],
        [range(4, 6), range(6, 8)],
        [range(8, 10), range(10, 12)],
    ]
    wanted = r"^--batch-size 8 cannot be shared evenly by 3 processes in --gradient-accumulation 1 parts: give a mul"
    with pytest.raises(EverlongError, match=wanted):
        parts_of(0, 3, 1, 8)
