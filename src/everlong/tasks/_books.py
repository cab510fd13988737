"""Book text by the sentence, from a place that is drawn."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from everlong.data.documents import Document
from everlong.data.inputs import read_documents

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
        """
        taken: list[np.ndarray] = []
        total, text, position = 0, "", 0
        while total < count:
            if position >= len(text):
                text = self.documents[int(random.integers(len(self.documents)))].text
                position = int(random.integers(len(text)))
                broken = True  # what stands first is the rest of a sentence
            window = text[position : position + WINDOW]
            at_end = position + WINDOW >= len(text)
            pieces = re.split(r"(?<=[.!?])\s+", window)
            if not at_end and len(pieces) > 1:
                pieces[-1:], window = [], window[: len(window) - len(pieces[-1])]
            position += len(window)
            for piece in pieces[1:] if broken and len(pieces) > 1 else pieces:
                sentence = " ".join(piece.split())
                if len(sentence) >= SHORTEST and total < count:
                    taken.append(ids(f" {sentence}"))
                    total += len(taken[-1])
            broken = False
        surplus, first = total - count, 0
        while surplus and surplus >= len(taken[first]):  # the last sentence can be longer than the first ones
            surplus -= len(taken[first])
            first += 1
        taken = taken[first:]
        if surplus:
            taken[0] = taken[0][surplus:]
        return taken
