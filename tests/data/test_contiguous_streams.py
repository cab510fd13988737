"""Contiguous streams: rows go on where they stood, every chunk once an epoch, the same in any order of asking."""

from collections import Counter
from itertools import pairwise

import pytest
import torch

from everlong.data.contiguous_streams import ContiguousStreams
from everlong.data.corpus import Corpus
from everlong.data.orders import DATA_ORDERS
from everlong.data.shuffled_chunks import ShuffledChunks
from everlong.errors import EverlongError
from tests.data.test_shuffled_chunks import CORPUS, FIRSTS, corpus_of

LAST = {1: 1004, 3: 3012, 5: 5000, 6: 6016}  # where the last chunk of each document begins


def order(batch_size: int = 3, seed: int = 0, corpus: Corpus = CORPUS) -> ContiguousStreams:
    return ContiguousStreams(corpus, length=4, batch_size=batch_size, seed=seed)


def firsts(streams: ContiguousStreams, steps: int) -> list[list[int]]:
    """The first token of every row of every batch."""
    return [streams.batch(step).tokens[:, 0].tolist() for step in range(steps)]


@pytest.mark.parametrize("batch_size", [1, 3, 4])
def test_a_row_goes_on_with_its_document_to_the_end_and_then_begins_another(batch_size):
    drawn = firsts(order(batch_size), 60)
    assert all(first % 1000 == 0 for first in drawn[0])
    for before, after in pairwise(drawn):
        for one, other in zip(before, after, strict=True):
            assert other % 1000 == 0 if one == LAST[one // 1000] else other == one + 4


def test_starts_mark_the_rows_that_begin_a_document_and_targets_are_the_next_tokens():
    streams = order()
    for step in range(20):
        batch = streams.batch(step)
        assert batch.starts.tolist() == [first % 1000 == 0 for first in batch.tokens[:, 0].tolist()]
        assert torch.equal(batch.targets, batch.tokens + 1)
        assert batch.rows.tolist() == [0, 1, 2]
        assert batch.resets is None
        assert batch.loss_mask is None


def test_alone_a_row_reads_every_chunk_exactly_once_an_epoch():
    drawn = [row[0] for row in firsts(order(1), 48)]
    epochs = [tuple(drawn[start : start + 12]) for start in range(0, 48, 12)]
    assert all(sorted(epoch) == FIRSTS for epoch in epochs)
    assert len(set(epochs)) > 1


@pytest.mark.parametrize("batch_size", [2, 3, 4])
def test_every_document_is_begun_once_before_any_is_begun_again_and_read_whole(batch_size):
    drawn = firsts(order(batch_size), 200)
    begun = [first // 1000 for row in drawn for first in row if first % 1000 == 0]
    for epoch in range(len(begun) // 4):
        assert sorted(begun[4 * epoch : 4 * (epoch + 1)]) == [1, 3, 5, 6]
    counts = Counter(first for row in drawn for first in row)
    assert sorted(counts) == FIRSTS
    for first, last in ((1000 * document, last) for document, last in LAST.items()):
        chunks = range(first, last + 1, 4)
        assert max(counts[chunk] for chunk in chunks) - min(counts[chunk] for chunk in chunks) <= batch_size


def test_a_batch_depends_on_seed_and_step_alone():
    forwards = order()
    expected = [forwards.batch(step).tokens for step in range(30)]
    backwards = order()
    for step in reversed(range(30)):
        assert torch.equal(backwards.batch(step).tokens, expected[step])
        assert torch.equal(order().batch(step).tokens, expected[step])
    assert firsts(order(seed=1), 10) != firsts(order(seed=0), 10)


def test_the_order_is_the_same_on_every_machine_and_version():
    assert firsts(order(), 4) == [[1000, 6000, 3000], [1004, 6004, 3004], [5000, 6008, 3008], [6000, 6012, 3012]]


def test_what_is_left_out_is_counted_as_in_shuffled_order():
    shuffled = ShuffledChunks(CORPUS, length=4, batch_size=3, seed=0)
    assert (order().chunks, order().tokens_left_out) == (shuffled.chunks, shuffled.tokens_left_out) == (12, 9)
    assert order().documents_left_out == shuffled.documents_left_out


def test_the_registry_knows_the_order_by_its_name():
    assert DATA_ORDERS["contiguous"] is ContiguousStreams


def test_more_rows_than_documents_are_refused():
    with pytest.raises(EverlongError, match=r"^5 rows would read 4 documents of more than 4 tokens .*--batch-size$"):
        order(5)
    with pytest.raises(EverlongError, match=r"^no document is longer than 4 tokens"):
        order(1, corpus=corpus_of(4, 2))
