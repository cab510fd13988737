"""Copying (Jelassi et al. 2024, arXiv 2402.01032): a string is read and written again."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from everlong.data.tokenizers import Tokenizer
from everlong.errors import EverlongError
from everlong.tasks._task import Example, Parameters, Task
from everlong.tasks.config import CopyingConfig

LETTERS = "abcdefghijklmnopqrstuvwxyz"
BEGIN, SEPARATOR, END = "$", "|", "."


class Copying(Task):
    """A string of random letters, once to be read and once to be written; a letter is a token.

        $ q f z a | q f z a .
        '--prompt--'-answer-'     a length of 4: 2 x 4 + 3 tokens

    In training all rows of a batch have one length, drawn between the shortest and the longest: so no row is ever
    padded, and the state that a row ends with is the state after its own last token. Character accuracy is over all
    positions after the separator, the end included: where the model reads the right string (teacher-forced, the
    paper's Table 1), and where it reads its own. A guess of the letters scores 1 / 26 and the end.
    """

    name: ClassVar[str] = "copying"
    measures: ClassVar[tuple[str, ...]] = ("character_accuracy", "free_character_accuracy", "exact_match")
    length_is: ClassVar[str] = "letters of the string"

    def __init__(self, config: CopyingConfig, tokenizer: Tokenizer, *, training: bool = False):
        super().__init__(config, tokenizer, training=training)
        single = {character: self.ids(character) for character in (*LETTERS, BEGIN, SEPARATOR, END)}
        for character, ids in single.items():
            if len(ids) != 1:
                raise EverlongError(
                    f"copying needs a tokenizer with a token for each letter; {tokenizer.name} makes {len(ids)} of "
                    f"{character!r}: give --tokenizer bytes"
                )
        self._letters = np.concatenate([single[letter] for letter in LETTERS])
        self._begin, self._separator, self._end = single[BEGIN], single[SEPARATOR], single[END]

    def cells(self, lengths: Sequence[int]) -> list[dict[str, Any]]:
        """One a length."""
        return [{"length": length} for length in lengths]

    def shortest_length(self, parameters: Parameters) -> int:
        """One letter."""
        return 1

    def tokens(self, length: int) -> int:
        """The string twice, and begin, separator and end."""
        return 2 * length + 3

    def draw(self, parameters: Parameters, random: np.random.Generator, seed: int, index: int) -> Example:
        """See ``Task``."""
        places = random.integers(len(LETTERS), size=parameters["length"])
        letters = self._letters[places]
        return Example(
            prompt=np.concatenate([self._begin, letters, self._separator]),
            answer=np.concatenate([letters, self._end]),
            target="".join(LETTERS[place] for place in places),
        )

    def training_length(self, random: np.random.Generator, context: int) -> int:
        """Drawn between the shortest and the longest, whatever the context, which must hold the longest.

        Raises:
            EverlongError: it does not.
        """
        longest = self.tokens(self.config.copy_longest) - 1
        if longest > context:
            raise EverlongError(
                f"copying {self.config.copy_longest} letters reads {longest} tokens, the context has {context}: "
                f"give --context {longest} or a smaller --copy-longest"
            )
        return int(random.integers(self.config.copy_shortest, self.config.copy_longest + 1))

    def training_parameters(self, random: np.random.Generator, length: int, index: int) -> dict[str, Any]:
        """Nothing but the length."""
        return {"length": length}

    def score(self, example: Example, forced: np.ndarray, written: np.ndarray) -> dict[str, float]:
        """Shares of the positions after the separator, and whether all that was written is right."""
        count = min(len(written), len(example.answer))
        right = written[:count] == example.answer[:count]
        return {
            "character_accuracy": float((forced == example.answer).mean()),
            "free_character_accuracy": float(right.sum() / len(example.answer)),
            "exact_match": float(right.sum() == len(example.answer)),
        }

    def floors(self, parameters: Parameters, examples: Sequence[Example]) -> dict[str, float]:
        """Who knows where the string ends, and who writes one letter only."""
        length = parameters["length"]
        by_chance = length / len(LETTERS)
        return {"chance": (by_chance + 1) / (length + 1), "most frequent": by_chance / (length + 1)}
