"""Book text by the sentence, from a place that is drawn."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from everlong.data.documents import Document
from everlong.data.inputs import read_documents
from everlong.errors import EverlongError

SHORTEST = 10  # characters of a sentence; shorter pieces are headings, numbers and initials
WINDOW = 1 << 14  # characters that are cut into sentences at once


@dataclass(frozen=True)
class Books:
    """Documents that sentences are taken from."""

    patterns: tuple[str, ...]

    @cached_property
    def documents(self) -> tuple[Document, ...]:
        """The texts, read once."""
        return read_documents(self.patterns).documents

    def sentences(self, random: np.random.Generator, count: int, ids: Callable[[str], np.ndarray]) -> list[np.ndarray]:
        """Consecutive sentences of ``count`` tokens together.

        They begin at a place that is drawn, and go on in another book, drawn too, where one ends. What is too
        much is taken off in front, so that the number is exact and every sentence but the first is whole.

        Args:
            random: of the draws.
            count: tokens, 0 or more.
            ids: encodes a sentence with the space before it.

        Raises:
            EverlongError: no book has a sentence.
        """
        taken: list[np.ndarray] = []
        total, running = 0, self._running(random)
        while total < count:
            taken.append(ids(f" {next(running)}"))
            total += len(taken[-1])
        surplus, first = total - count, 0
        while surplus and surplus >= len(taken[first]):  # the last sentence can be longer than the first ones
            surplus -= len(taken[first])
            first += 1
        taken = taken[first:]
        if surplus:
            taken[0] = taken[0][surplus:]
        return taken

    def _running(self, random: np.random.Generator) -> Iterator[str]:
        """Sentences without end, of a book after another; one with none behind its place is read from its beginning."""
        barren: set[int] = set()
        while len(barren) < len(self.documents):
            book = int(random.integers(len(self.documents)))
            text = self.documents[book].text
            place = int(random.integers(len(text)))
            found = False
            for sentence in _sentences(text, place, broken=True):
                found = True
                yield sentence
            for sentence in () if found else _sentences(text, 0, broken=False):
                found = True
                yield sentence
            if not found:
                barren.add(book)
        raise EverlongError(
            f"--books {' '.join(self.patterns)} has no sentence of {SHORTEST} characters or more: give prose"
        )


def _sentences(text: str, position: int, *, broken: bool) -> Iterator[str]:
    """Those behind a place; if it is ``broken``, what stands first is the rest of a sentence and is left out."""
    while position < len(text):
        window = text[position : position + WINDOW]
        at_end = position + WINDOW >= len(text)
        pieces = re.split(r"(?<=[.!?])\s+", window)
        if not at_end and len(pieces) > 1:
            pieces[-1:], window = [], window[: len(window) - len(pieces[-1])]
        position += len(window)
        for piece in pieces[1:] if broken and len(pieces) > 1 else pieces:
            sentence = " ".join(piece.split())
            if len(sentence) >= SHORTEST:
                yield sentence
        broken = False
