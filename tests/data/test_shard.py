"""Shards: the processes' rows are the whole batch, each row once, for every data order."""

from collections import Counter

import pytest
import torch

from everlong.data.orders import DATA_ORDERS
from everlong.data.shard import Shard, rows_of
from everlong.errors import EverlongError
from tests.data.test_shuffled_chunks import CORPUS, FIRSTS

LENGTH, ROWS = 4, 4


def order(name: str):
    return DATA_ORDERS[name](CORPUS, length=LENGTH, batch_size=ROWS, seed=0)


@pytest.mark.parametrize("name", DATA_ORDERS)
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_the_shards_together_are_the_batch(name, processes):
    whole = order(name)
    shards = [Shard(order(name), rank=rank, processes=processes) for rank in range(processes)]
    for step in (0, 5, 1, 30):
        batch = whole.batch(step)
        parts = [shard.batch(step) for shard in shards]
        for field in ("tokens", "targets", "starts", "rows", "resets", "loss_mask"):
            values = [getattr(part, field) for part in parts]
            expected = getattr(batch, field)
            assert expected is None if values[0] is None else torch.equal(torch.cat(values), expected)


@pytest.mark.parametrize("processes", [1, 2, 4])
def test_every_chunk_is_read_once_an_epoch_by_one_process(processes):
    """Twelve chunks in batches of four: an epoch is three steps."""
    shards = [Shard(order("shuffled"), rank=rank, processes=processes) for rank in range(processes)]
    for epoch in range(5):
        steps = range(3 * epoch, 3 * epoch + 3)
        read = [int(first) for shard in shards for step in steps for first in shard.batch(step).tokens[:, 0]]
        assert sorted(read) == FIRSTS


@pytest.mark.parametrize("processes", [2, 4])
def test_every_predicted_token_of_packed_documents_is_scored_once_an_epoch_over_all_processes(processes):
    shards = [Shard(order("packed"), rank=rank, processes=processes) for rank in range(processes)]
    counts: Counter[int] = Counter()
    for step in range(200):
        for batch in (shard.batch(step) for shard in shards):
            assert batch.loss_mask is not None
            counts.update(batch.targets[batch.loss_mask].tolist())
    sizes = [len(document.tokens) for document in CORPUS.documents]
    assert sorted(counts) == [1000 * place + at for place, size in enumerate(sizes) for at in range(1, size)]
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_row_goes_on_with_its_document_on_its_own_process():
    shards = [Shard(order("contiguous"), rank=rank, processes=2) for rank in range(2)]
    for shard in shards:
        before = shard.batch(0)
        for step in range(1, 20):
            after = shard.batch(step)
            for row in range(2):
                goes_on = int(after.tokens[row, 0]) == int(before.targets[row, -1])
                assert goes_on != bool(after.starts[row])
            before = after


def test_rows_that_cannot_be_parted_evenly_are_refused():
    assert [rows_of(rank, 3, 6) for rank in range(3)] == [range(2), range(2, 4), range(4, 6)]
    with pytest.raises(EverlongError, match=r"^--batch-size 8 cannot be parted evenly among 3 processes: give a mul"):
        rows_of(0, 3, 8)
    with pytest.raises(EverlongError, match=r"^rank 2 of 2 processes: give 0 to 1$"):
        rows_of(2, 2, 4)
