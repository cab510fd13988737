"""Shuffled chunks: each once an epoch, never across documents, the same for a seed and step in any order of asking."""

import numpy as np
import pytest
import torch

from everlong.data.corpus import Corpus, TokenDocument
from everlong.data.orders import DATA_ORDERS
from everlong.data.shuffled_chunks import ShuffledChunks
from everlong.errors import EverlongError


def corpus_of(*sizes: int) -> Corpus:
    """Documents whose tokens say where they stand: 1000 * document + position."""
    tokens = [np.arange(1000 * i, 1000 * i + size, dtype=np.uint16) for i, size in enumerate(sizes)]
    return Corpus(tuple(TokenDocument(f"d{i}", each) for i, each in enumerate(tokens)))


CORPUS = corpus_of(0, 9, 4, 17, 1, 5, 23, 2)  # in chunks of 4: 0, 2, 0, 4, 0, 1, 5, 0
FIRSTS = [1000, 1004, 3000, 3004, 3008, 3012, 5000, 6000, 6004, 6008, 6012, 6016]


def order(batch_size: int = 5, seed: int = 0, corpus: Corpus = CORPUS) -> ShuffledChunks:
    return ShuffledChunks(corpus, length=4, batch_size=batch_size, seed=seed)


def firsts(order: ShuffledChunks, steps: range) -> list[int]:
    return [int(token) for step in steps for token in order.batch(step).tokens[:, 0]]


@pytest.mark.parametrize("batch_size", [1, 5, 12, 30])
def test_every_chunk_comes_exactly_once_an_epoch(batch_size):
    drawn = firsts(order(batch_size), range(60 // batch_size + 1))
    for epoch in range(len(drawn) // 12):
        assert sorted(drawn[12 * epoch : 12 * (epoch + 1)]) == FIRSTS


def test_epochs_differ_in_their_order():
    drawn = firsts(order(12), range(4))
    assert len({tuple(drawn[start : start + 12]) for start in range(0, 48, 12)}) == 4


def test_a_batch_depends_on_seed_and_step_alone():
    forwards = order()
    expected = [forwards.batch(step).tokens for step in range(10)]
    backwards = order()
    for step in reversed(range(10)):
        assert torch.equal(backwards.batch(step).tokens, expected[step])
    assert firsts(order(seed=1), range(4)) != firsts(order(seed=0), range(4))


def test_the_order_is_the_same_on_every_machine_and_version():
    assert firsts(order(), range(1)) == [1000, 6004, 6008, 3004, 6000]


def test_targets_are_the_next_tokens_of_the_same_document():
    chunks = order(12)
    batch = chunks.batch(0)
    assert torch.equal(batch.targets, batch.tokens + 1)
    assert torch.equal(batch.targets // 1000, (batch.tokens[:, :1] // 1000).expand(12, 4))
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    sizes = torch.tensor([len(document.tokens) for document in CORPUS.documents])
    assert (batch.targets % 1000 < sizes[batch.targets // 1000]).all()


def test_starts_mark_the_rows_that_begin_a_document_and_rows_are_numbered():
    batch = order(12).batch(0)
    assert batch.starts.tolist() == [first % 1000 == 0 for first in batch.tokens[:, 0].tolist()]
    assert batch.starts.sum() == 4
    assert batch.rows.tolist() == list(range(12))
    assert batch.loss_mask is None
    assert batch.resets is None


def test_chunks_epochs_and_what_is_left_out_are_counted():
    chunks = order()
    assert chunks.chunks == 12
    # Read or predicted are 9, 17, 5 and 21 tokens of the documents with chunks; all others are left out.
    assert chunks.tokens_left_out == CORPUS.tokens - (9 + 17 + 5 + 21)
    assert chunks.documents_left_out == len(CORPUS.documents) - 4
    assert [chunks.epoch_of(step) for step in range(6)] == [0, 0, 0, 1, 1, 2]
    assert [order(30).epoch_of(step) for step in range(3)] == [0, 2, 5]


def test_the_registry_knows_the_order_by_its_name():
    assert DATA_ORDERS["shuffled"] is ShuffledChunks
    assert all(DATA_ORDERS[name].data_order == name for name in DATA_ORDERS)


@pytest.mark.parametrize(
    ("corpus", "settings", "message"),
    [
        (
            CORPUS,
            {"length": 23},
            r"^no document is longer than 23 tokens, .*'d6' has 23 tokens\): give longer --data or a",
        ),
        (Corpus(()), {}, r"the longest: there is none"),
        (CORPUS, {"length": 0}, r"^length 0: give 1 or more$"),
        (CORPUS, {"batch_size": 0}, r"^batch size 0: give 1 or more$"),
        (CORPUS, {"seed": -1}, r"^seed -1: give 0 or more$"),
    ],
)
def test_what_cannot_be_cut_is_an_error(corpus, settings, message):
    with pytest.raises(EverlongError, match=message):
        ShuffledChunks(corpus, **{"length": 4, "batch_size": 2, "seed": 0} | settings)
