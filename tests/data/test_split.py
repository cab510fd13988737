"""What is held out is never trained on, and which documents these are is a rule that anyone can repeat."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlong.data.corpus import Corpus, Split, TokenDocument, split
from everlong.errors import EverlongError


def corpus_of(*sizes: int) -> Corpus:
    return Corpus(tuple(TokenDocument(f"d{i}", np.zeros(size, dtype=np.uint16)) for i, size in enumerate(sizes)))


def names(corpus: Corpus) -> list[str]:
    return [document.name for document in corpus.documents]


def held_out(corpus: Corpus, length: int = 100, documents: int = 4, seed: int = 0) -> list[str]:
    return names(split(corpus, length=length, documents=documents, seed=seed).held_out)


@settings(deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.integers(0, 300), min_size=2, max_size=20),
    documents=st.integers(1, 12),
    seed=st.integers(0, 1000),
)
def test_the_rule_keeps_documents_apart_and_half_of_the_tokens_for_training(sizes, documents, seed):
    corpus = corpus_of(*sizes)
    if sum(size > 0 for size in sizes) < 2:
        with pytest.raises(EverlongError, match="cannot be parted"):
            split(corpus, length=100, documents=documents, seed=seed)
        return
    parts = split(corpus, length=100, documents=documents, seed=seed)
    assert isinstance(parts, Split)
    assert not set(names(parts.train)) & set(names(parts.held_out))
    assert sorted(names(parts.train) + names(parts.held_out)) == sorted(names(corpus))
    assert 1 <= len(names(parts.held_out)) <= documents
    assert 2 * parts.train.tokens >= corpus.tokens


def test_long_documents_are_drawn_by_the_seed_alone():
    corpus = corpus_of(*[200] * 20, *[50] * 20)
    draws = [held_out(corpus, seed=seed) for seed in range(8)]
    assert draws == [held_out(corpus, seed=seed) for seed in range(8)]
    assert len(set(map(tuple, draws))) > 1
    assert all(len(draw) == 4 and all(int(name[1:]) < 20 for name in draw) for draw in draws)


def test_the_draw_is_the_same_on_every_machine_and_version():
    assert held_out(corpus_of(*[200] * 20)) == ["d0", "d8", "d9", "d19"]


def test_too_few_long_documents_are_made_up_by_the_longest_of_the_rest():
    corpus = corpus_of(10, 90, 200, 80, 200, 70, *[60] * 10)
    assert sorted(held_out(corpus, documents=4)) == ["d1", "d2", "d3", "d4"]


def test_a_document_of_more_than_half_the_tokens_stays_in_training():
    assert held_out(corpus_of(1000, 50, 40), documents=2) == ["d1", "d2"]
    assert held_out(corpus_of(1000, 200), documents=2) == ["d1"]


def test_named_documents_are_held_out_and_unknown_names_passed_over():
    parts = split(corpus_of(5, 6, 7), length=100, documents=9, seed=0, held_out_names=frozenset({"d2", "d0", "gone"}))
    assert names(parts.held_out) == ["d0", "d2"]
    assert names(parts.train) == ["d1"]


@pytest.mark.parametrize(
    ("sizes", "held_out_names", "message"),
    [
        (
            (500,),
            None,
            r"^1 document cannot be parted into training and held-out ones .*: give --held-out, or more --data$",
        ),
        (
            (5, 5),
            frozenset({"d0", "d1"}),
            r"^all 2 documents are held out and none is left to train on: give more --data$",
        ),
        ((5, 5), frozenset({"x"}), r"^none of the 1 held-out names is a document: give --held-out anew$"),
    ],
)
def test_an_empty_part_is_an_error(sizes, held_out_names, message):
    with pytest.raises(EverlongError, match=message):
        split(corpus_of(*sizes), length=100, documents=4, seed=0, held_out_names=held_out_names)


def test_a_negative_seed_is_refused():
    with pytest.raises(EverlongError, match=r"^seed -1 is negative: give 0 or more$"):
        held_out(corpus_of(200, 200), seed=-1)
