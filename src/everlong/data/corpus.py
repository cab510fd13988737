"""Documents as tokens, and their split into what is trained on and what is held out."""

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import overload

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


class StoredDocuments(Sequence[TokenDocument]):
    """Documents that lie in a file, each made when it is asked for; their names differ."""

    @property
    @abstractmethod
    def sizes(self) -> np.ndarray:
        """Tokens of each document, [D] int64."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """One more than the largest token, or some number above it."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """What tells their tokens, in order, from others, in hex."""

    @abstractmethod
    def document(self, place: int) -> TokenDocument:
        """The document at a place, 0 to D - 1."""

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, index: int) -> TokenDocument: ...
    @overload
    def __getitem__(self, index: slice) -> "ChosenDocuments": ...
    def __getitem__(self, index: int | slice) -> "TokenDocument | ChosenDocuments":
        if isinstance(index, slice):
            return ChosenDocuments(self, np.arange(len(self))[index])
        return self.document(range(len(self))[index])


class ChosenDocuments(StoredDocuments):
    """Some of the documents in a file, by their places in it."""

    def __init__(self, documents: StoredDocuments, places: np.ndarray):
        self._documents, self._places = documents, places
        self._sizes = documents.sizes[places]

    @property
    def sizes(self) -> np.ndarray:
        """Tokens of each document, [D] int64."""
        return self._sizes

    @property
    def vocabulary(self) -> int:
        """That of the whole file."""
        return self._documents.vocabulary

    @cached_property
    def identity(self) -> str:
        """Of the file's identity and the places."""
        places = self._places.astype("<i8").tobytes()
        return hashlib.sha256(self._documents.identity.encode() + places).hexdigest()

    def document(self, place: int) -> TokenDocument:
        """The document at a place of the choice."""
        return self._documents.document(int(self._places[place]))


def token_dtype(vocab_size: int) -> np.dtype:
    """How ids are kept: uint16 where the vocabulary allows it, else uint32."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.uint32)


def encode(document: Document, tokenizer: Tokenizer) -> TokenDocument:
    """Tokenizes one document.

    Raises:
        EverlongError: its text gives no tokens at all.
    """
    ids = tokenizer.encode(document.text)
    if document.text and not len(ids):
        raise EverlongError(
            f"tokenizer {tokenizer.name!r} makes nothing of document {document.name!r}: give another, {CHOICES}"
        )
    return TokenDocument(document.name, ids.astype(token_dtype(tokenizer.vocab_size)))


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents in a fixed order, each under a name of its own; they are never joined."""

    documents: tuple[TokenDocument, ...] | StoredDocuments

    def __post_init__(self):
        if isinstance(self.documents, StoredDocuments):
            return
        names: set[str] = set()
        for document in self.documents:
            if document.name in names:
                raise EverlongError(f"two documents are named {document.name!r}: read each file once")
            names.add(document.name)

    @classmethod
    def encode(
        cls, documents: Iterable[Document], tokenizer: Tokenizer, advance: Callable[[int], None] | None = None
    ) -> "Corpus":
        """Tokenizes documents one by one, in memory.

        Args:
            documents: the texts.
            tokenizer: makes the ids.
            advance: called after each document with the number of characters just done.

        Raises:
            EverlongError: a text gives no tokens at all, or two documents have one name.
        """
        encoded = []
        for document in documents:
            encoded.append(encode(document, tokenizer))
            if advance is not None:
                advance(len(document.text))
        return cls(tuple(encoded))

    @cached_property
    def sizes(self) -> np.ndarray:
        """Tokens of each document, [D] int64."""
        if isinstance(self.documents, StoredDocuments):
            return self.documents.sizes
        return np.array([len(document.tokens) for document in self.documents], dtype=np.int64)

    @property
    def tokens(self) -> int:
        """Tokens in all documents together."""
        return int(self.sizes.sum())

    @property
    def longest(self) -> TokenDocument:
        """The document with most tokens, the first of them if there are several."""
        if not len(self.sizes):
            raise ValueError("an empty corpus has no longest document")
        return self.documents[int(self.sizes.argmax())]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over names and tokens in order, in hex; the width in which tokens are stored does not count."""
        digest = hashlib.sha256()
        for document in self.documents:
            name = document.name.encode("utf-8", errors="surrogateescape")
            digest.update(f"{len(name)} {len(document.tokens)} ".encode() + name)
            digest.update(document.tokens.astype("<u4").tobytes())
        return digest.hexdigest()

    @cached_property
    def identity(self) -> str:
        """What tells the tokens, in order, from others, in hex; of a token file it takes no reading of the file.

        Unlike in ``fingerprint``, names do not count: they depend on the folder that one works in, and training does
        not depend on them. In memory and in a file it is not the same.
        """
        if isinstance(self.documents, StoredDocuments):
            return self.documents.identity
        digest = hashlib.sha256(self.sizes.astype("<i8").tobytes())
        for document in self.documents:
            digest.update(document.tokens.astype("<u4").tobytes())
        return digest.hexdigest()

    def choose(self, places: np.ndarray) -> "Corpus":
        """The documents at these places, which are in ascending order."""
        if isinstance(self.documents, StoredDocuments):
            return Corpus(ChosenDocuments(self.documents, places))
        return Corpus(tuple(self.documents[place] for place in places.tolist()))

    def longer_than(self, length: int) -> "Corpus":
        """The documents of more than ``length`` tokens."""
        return self.choose(np.flatnonzero(self.sizes > length))

    def select(self, names: Set[str]) -> "Corpus":
        """The documents with these names, in this corpus's order; names that it does not have are passed over."""
        return self.choose(self._named(names))

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raises an error that names the first token that a model of this vocabulary does not know."""
        if isinstance(self.documents, StoredDocuments) and self.documents.vocabulary <= vocab_size:
            return
        for document in self.documents:
            unknown = document.tokens >= vocab_size
            if unknown.any():
                position = int(unknown.argmax())
                raise EverlongError(
                    f"document {document.name!r} has token id {document.tokens[position]} at position {position}, the "
                    f"model knows 0 to {vocab_size - 1}: give the tokenizer it was trained with, {CHOICES}"
                )

    def _named(self, names: Set[str]) -> np.ndarray:
        found = [place for place, document in enumerate(self.documents) if document.name in names]
        return np.array(found, dtype=np.int64)


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
        places = _by_rule(corpus, length, documents, seed)
        if not len(places):
            count = f"{len(corpus.documents)} document{'s' * (len(corpus.documents) != 1)}"
            raise EverlongError(
                f"{count} cannot be parted into training and held-out ones (at least half of all tokens stay in "
                "training): give --held-out, or more --data"
            )
    else:
        places = corpus._named(held_out_names)
        if not len(places):
            raise EverlongError(f"none of the {len(held_out_names)} held-out names is a document: give --held-out anew")
    rest = np.setdiff1d(np.arange(len(corpus.documents)), places)
    if not len(rest):
        raise EverlongError(f"all {len(places)} documents are held out and none is left to train on: give more --data")
    return Split(corpus.choose(rest), corpus.choose(places))


def _by_rule(corpus: Corpus, length: int, wanted: int, seed: int) -> np.ndarray:
    """The places of the documents to hold out, in ascending order."""
    sizes = corpus.sizes
    long = np.flatnonzero(sizes > length)
    shuffled = long[permutation(len(long), seed)]
    longest = np.argsort(-sizes, kind="stable")
    budget = int(sizes.sum()) // 2
    chosen: set[int] = set()
    for candidates, limit in ((shuffled, min(wanted, len(long) // 2)), (longest, wanted)):
        for place in map(int, candidates):
            if len(chosen) >= limit:
                break
            if place not in chosen and 0 < sizes[place] <= budget:
                chosen.add(place)
                budget -= int(sizes[place])
    return np.array(sorted(chosen), dtype=np.int64)
