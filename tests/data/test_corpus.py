"""Documents as tokens: kept apart, stored narrowly, checked, and recognised again."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from everlong.data.corpus import Corpus, TokenDocument
from everlong.data.documents import Document, Documents
from everlong.data.tokenizers import ByteTokenizer
from everlong.errors import EverlongError


class CharacterTokenizer:
    """Code points as ids, for any size of vocabulary."""

    name = "characters"

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size

    def encode(self, text: str) -> np.ndarray:
        return np.array([ord(character) for character in text if character != "\0"], dtype=np.int32)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        return "".join(map(chr, ids))

    def save(self, folder: Path) -> None: ...


def corpus_of(**texts: str) -> Corpus:
    return Corpus.encode([Document(name, text) for name, text in texts.items()], ByteTokenizer())


def test_each_document_is_tokenized_by_itself_and_progress_is_told():
    done: list[int] = []
    documents = Documents((Document("a", "né"), Document("b", "xyz")), {})
    corpus = Corpus.encode(documents, ByteTokenizer(), done.append)
    assert [document.tokens.tolist() for document in corpus.documents] == [list("né".encode()), list(b"xyz")]
    assert done == [2, 3]
    assert corpus.tokens == 6


@pytest.mark.parametrize(("vocab_size", "dtype"), [(256, np.uint16), (65_536, np.uint16), (65_537, np.uint32)])
def test_tokens_are_stored_as_narrowly_as_the_vocabulary_allows(vocab_size, dtype):
    text = "a" if vocab_size < 65_536 else chr(vocab_size - 1)
    tokens = Corpus.encode([Document("a", text)], CharacterTokenizer(vocab_size)).documents[0].tokens
    assert tokens.dtype == dtype
    assert tokens.tolist() == [ord(text)]


def test_the_fingerprint_knows_names_tokens_and_bounds_but_not_the_storage():
    base = corpus_of(a="one", b="two")
    assert base.fingerprint == corpus_of(a="one", b="two").fingerprint
    others = (corpus_of(a="onet", b="wo"), corpus_of(a="one", c="two"), corpus_of(b="two", a="one"), corpus_of(a="one"))
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 5
    wide = Corpus(tuple(TokenDocument(each.name, each.tokens.astype(np.uint32)) for each in base.documents))
    assert wide.fingerprint == base.fingerprint
    assert len(base.fingerprint) == 64


def test_the_identity_knows_tokens_order_and_bounds_but_neither_names_nor_the_storage():
    base = corpus_of(a="one", b="two")
    assert base.identity == corpus_of(c="one", d="two").identity
    others = (corpus_of(a="onet", b="wo"), corpus_of(b="two", a="one"), corpus_of(a="one"), corpus_of(a="one", b="twi"))
    assert len({base.identity, *(other.identity for other in others)}) == 5
    wide = Corpus(tuple(TokenDocument(each.name, each.tokens.astype(np.uint32)) for each in base.documents))
    assert wide.identity == base.identity


def test_documents_are_chosen_by_length_and_by_name():
    corpus = corpus_of(a="1", b="22", c="333")
    assert [document.name for document in corpus.longer_than(1).documents] == ["b", "c"]
    assert [document.name for document in corpus.select({"c", "a", "elsewhere"}).documents] == ["a", "c"]
    assert corpus.longest.name == "c"


def test_two_documents_of_one_name_are_refused():
    document = TokenDocument("a.txt", np.array([1], dtype=np.uint16))
    with pytest.raises(EverlongError, match=r"^two documents are named 'a.txt': read each file once$"):
        Corpus((document, document))


def test_a_token_past_the_vocabulary_is_named_with_its_place():
    corpus = corpus_of(a="ab", b="abcz")
    corpus.check_vocabulary(123)
    corpus.check_vocabulary(1_000_000)
    message = (
        r"^document 'b' has token id 122 at position 3, the model knows 0 to 121: give the tokenizer .* --tokenizer"
    )
    with pytest.raises(EverlongError, match=message):
        corpus.check_vocabulary(122)


def test_a_text_that_gives_no_tokens_is_not_passed_over():
    with pytest.raises(EverlongError, match=r"^tokenizer 'characters' makes nothing of document 'a'"):
        Corpus.encode([Document("a", "\0")], CharacterTokenizer(256))
