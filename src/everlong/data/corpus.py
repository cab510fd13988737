"""Documents as tokens, and their split into what is trained on and what is held out."""

import hashlib
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from everlong.data._permutation import permutation
from everlong.data.documents import Document
from everlong.data.tokenizers import CHOICES, Tokenizer
from everlong.errors import EverlongError


@dataclass(frozen=True, eq=False)
class TokenDocument:
    """One document: its name and its tokens, [T] of an unsigned integer type."""

    name: str
    tokens: np.ndarray


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents in a fixed order, each under a name of its own; they are never joined."""

    documents: tuple[TokenDocument, ...]

    def __post_init__(self):
        names: set[str] = set()
        for document in self.documents:
            if document.name in names:
                raise EverlongError(f"two documents are named {document.name!r}: read each file once")
            names.add(document.name)

    @classmethod
    def encode(
        cls, documents: Iterable[Document], tokenizer: Tokenizer, advance: Callable[[int], None] | None = None
    ) -> "Corpus":
        """Tokenizes documents one by one; ids are kept as uint16 where the vocabulary allows it, else as uint32.

        Args:
            documents: the texts.
            tokenizer: makes the ids.
            advance: called after each document with the number of characters just done.

        Raises:
            EverlongError: a text gives no tokens at all, or two documents have one name.
        """
        dtype = np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.uint32
        encoded = []
        for document in documents:
            ids = tokenizer.encode(document.text)
            if document.text and not len(ids):
                raise EverlongError(
                    f"tokenizer {tokenizer.name!r} makes nothing of document {document.name!r}: give another, {CHOICES}"
                )
            encoded.append(TokenDocument(document.name, ids.astype(dtype)))
            if advance is not None:
                advance(len(document.text))
        return cls(tuple(encoded))

    @property
    def tokens(self) -> int:
        """Tokens in all documents together."""
        return sum(len(document.tokens) for document in self.documents)

    @property
    def longest(self) -> TokenDocument:
        """The document with most tokens, the first of them if there are several."""
        return max(self.documents, key=lambda document: len(document.tokens))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over names and tokens in order, in hex; the width in which tokens are stored does not count."""
        digest = hashlib.sha256()
        for document in self.documents:
            name = document.name.encode("utf-8", errors="surrogateescape")
            digest.update(f"{len(name)} {len(document.tokens)} ".encode() + name)
            digest.update(document.tokens.astype("<u4").tobytes())
        return digest.hexdigest()

    def longer_than(self, length: int) -> "Corpus":
        """The documents of more than ``length`` tokens."""
        return Corpus(tuple(document for document in self.documents if len(document.tokens) > length))

    def select(self, names: Set[str]) -> "Corpus":
        """The documents with these names, in this corpus's order; names that it does not have are passed over."""
        return Corpus(tuple(document for document in self.documents if document.name in names))

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises an error that names the first token that a model of this vocabulary does not know."""
        for document in self.documents:
            unknown = document.tokens >= vocab_size
            if unknown.any():
                position = int(unknown.argmax())
                raise EverlongError(
                    f"document {document.name!r} has token id {document.tokens[position]} at position {position}, the "
                    f"model knows 0 to {vocab_size - 1}: give the tokenizer it was trained with, {CHOICES}"
                )


@dataclass(frozen=True)
class Split:
    """Two parts of a corpus that share no document, both in its order."""

    train: Corpus
    held_out: Corpus


def split(corpus: Corpus, *, length: int, documents: int, seed: int, held_out_names: Set[str] | None = None) -> Split:
    """Parts a corpus into what is trained on and what is held out.

    With names, the documents of these names are held out. Without, the rule is: the documents longer than ``length``
    are shuffled by the seed, and up to ``documents`` of them, at most half of them, are held out; if these are too few,
    the longest of all that remain follow. A document is passed over if less than half of all tokens would then be left
    for training.

    Args:
        corpus: what is parted.
        length: tokens; documents that a diagnosis can read to this length are longer.
        documents: how many to hold out, if the rule allows so many.
        seed: of the shuffle, 0 or more.
        held_out_names: the names to hold out (those not in the corpus are passed over); None: by the rule.

    Raises:
        EverlongError: one of the two parts would be empty.
    """
    if held_out_names is None:
        held_out_names = _by_rule(corpus, length, documents, seed)
        if not held_out_names:
            count = f"{len(corpus.documents)} document{'s' * (len(corpus.documents) != 1)}"
            raise EverlongError(
                f"{count} cannot be parted into training and held-out ones (at least half of all tokens stay in "
                "training): give --held-out, or more --data"
            )
    held_out = corpus.select(held_out_names)
    if not held_out.documents:
        raise EverlongError(f"none of the {len(held_out_names)} held-out names is a document: give --held-out anew")
    train = Corpus(tuple(document for document in corpus.documents if document.name not in held_out_names))
    if not train.documents:
        count = len(held_out.documents)
        raise EverlongError(f"all {count} documents are held out and none is left to train on: give more --data")
    return Split(train, held_out)


def _by_rule(corpus: Corpus, length: int, wanted: int, seed: int) -> set[str]:
    long = corpus.longer_than(length).documents
    shuffled = [long[index] for index in permutation(len(long), seed)]
    longest = sorted(corpus.documents, key=lambda document: -len(document.tokens))
    budget = corpus.tokens // 2
    names: set[str] = set()
    for candidates, limit in ((shuffled, min(wanted, len(long) // 2)), (longest, wanted)):
        for document in candidates:
            fits = 0 < len(document.tokens) <= budget
            if len(names) < limit and document.name not in names and fits:
                names.add(document.name)
                budget -= len(document.tokens)
    return names
