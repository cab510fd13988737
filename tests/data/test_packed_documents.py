"""Packed documents: every token is predicted once an epoch, documents stay whole and apart, in any order of asking."""

from collections import Counter

import numpy as np
import pytest
import torch

from everlong.data.corpus import Corpus, TokenDocument
from everlong.data.packed_documents import PackedDocuments
from everlong.errors import EverlongError
from everlong.models.architectures import create
from tests.data.test_shuffled_chunks import corpus_of

SIZES = (0, 9, 4, 17, 1, 5, 23, 2, 3, 3, 8)
CORPUS = corpus_of(*SIZES)
PREDICTED = [1000 * place + at for place, size in enumerate(SIZES) for at in range(1, size)]


def order(batch_size: int = 3, seed: int = 0, corpus: Corpus = CORPUS, length: int = 8) -> PackedDocuments:
    return PackedDocuments(corpus, length=length, batch_size=batch_size, seed=seed)


def rows(packed: PackedDocuments, count: int) -> list[tuple[np.ndarray, ...]]:
    """Inputs, targets, scored, resets of the first rows, and whether a document begins at their beginning."""
    found = []
    for step in range(-(-count // packed.batch_size)):
        batch = packed.batch(step)
        assert batch.loss_mask is not None
        assert batch.resets is not None
        parts = (batch.tokens, batch.targets, batch.loss_mask, batch.resets, batch.starts)
        found.extend(zip(*(part.numpy() for part in parts), strict=True))
    return found[:count]


def epoch_rows(packed: PackedDocuments) -> int:
    packed.batch(0)
    return packed._first_rows[1]


@pytest.mark.parametrize("length", [1, 3, 8, 64])
def test_every_token_but_the_first_of_a_document_is_predicted_exactly_once_an_epoch(length):
    packed = order(1, length=length)
    count = epoch_rows(packed)
    drawn = rows(packed, count)
    assert sorted(token for _, targets, scored, *_ in drawn for token in targets[scored].tolist()) == PREDICTED
    assert (packed.tokens_left_out, packed.documents_left_out) == (1, 2)  # one of them is empty


def test_epochs_differ_in_their_order_and_each_is_whole():
    packed = order(1)
    packed.batch(500)
    epochs = [range(*bounds) for bounds in zip(packed._first_rows[:4], packed._first_rows[1:5], strict=True)]
    drawn = [[packed.batch(row).targets[packed.batch(row).loss_mask].tolist() for row in epoch] for epoch in epochs]
    assert all(sorted(token for row in epoch for token in row) == PREDICTED for epoch in drawn)
    assert len({str(epoch) for epoch in drawn}) == 4


def test_a_document_that_fits_a_row_is_whole_and_a_longer_one_fills_rows():
    for inputs, targets, scored, *_ in rows(order(1), epoch_rows(order(1))):
        pieces = Counter((targets[scored] // 1000).tolist())
        for document, count in pieces.items():
            size = SIZES[document] - 1
            assert count == size if size <= 8 else count in (8, size % 8)
        assert (inputs[scored] + 1 == targets[scored]).all()


def test_resets_are_where_a_piece_begins_inside_a_row_and_starts_where_a_document_begins_a_row():
    for inputs, targets, scored, resets, start in rows(order(1), 3 * epoch_rows(order(1))):
        begins = scored & np.append(True, (targets[:-1] != inputs[1:]) | ~scored[:-1])
        assert not resets[0]
        assert (resets[1:] == begins[1:]).all()
        assert start == (scored[0] and inputs[0] % 1000 == 0)


def test_what_stays_free_is_at_the_beginning_of_a_row_and_little_of_many_short_documents():
    sizes = np.random.default_rng(0).integers(2, 40, 3000)
    documents = tuple(TokenDocument(f"d{i}", np.zeros(size, dtype=np.uint16)) for i, size in enumerate(sizes))
    packed = order(1, corpus=Corpus(documents), length=64)
    free = [int((~scored).sum()) for *_, scored, _, _ in rows(packed, epoch_rows(packed))]
    assert sum(free) / (64 * len(free)) < 0.02
    for *_, scored, _, _ in rows(order(1), epoch_rows(order(1))):
        assert (np.diff(scored.astype(int)) >= 0).all()


def test_a_batch_depends_on_seed_and_step_alone():
    forwards = order()
    expected = [forwards.batch(step) for step in range(30)]
    backwards = order()
    for step in reversed(range(30)):
        for one in (backwards.batch(step), order().batch(step)):
            assert torch.equal(one.tokens, expected[step].tokens)
            assert str(one.resets) == str(expected[step].resets)
    assert not torch.equal(order(seed=1).batch(0).tokens, expected[0].tokens)


def test_the_order_is_the_same_on_every_machine_and_version():
    assert order().batch(0).targets[:, -1].tolist() == [3008, 6016, 6022]


def test_a_model_reads_packed_documents_as_it_reads_each_alone():
    torch.manual_seed(0)
    model = create("mamba2", vocab_size=11_000, d_model=16, n_layer=2, d_state=8, headdim=8, backend="chunked")
    model = model.double()
    alone = {}
    for document in CORPUS.documents:
        if len(document.tokens) > 1:
            tokens = torch.from_numpy(document.tokens.astype(np.int64))[None]
            alone[int(tokens[0, 0]) // 1000] = model(tokens).logits[0]
    batch = order(6, length=32).batch(0)
    logits = model(batch.tokens, resets=batch.resets).logits
    assert batch.loss_mask is not None
    for row, at in batch.loss_mask.nonzero().tolist():
        document, position = divmod(int(batch.tokens[row, at]), 1000)
        assert torch.allclose(logits[row, at], alone[document][position], atol=1e-10)


def test_documents_without_a_second_token_are_refused():
    with pytest.raises(EverlongError, match=r"^no document has more than one token"):
        order(corpus=corpus_of(1, 0, 1))
    with pytest.raises(EverlongError, match=r"^length 0: give 1 or more$"):
        order(length=0)
