"""Passkey retrieval, in the form of Landmark Attention (Mohtashami & Jaggi 2023, arXiv 2305.16300), our own wording."""

import re
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from everlong.data.tokenizers import Tokenizer
from everlong.tasks._filler import filler
from everlong.tasks._task import Example, Parameters, Task
from everlong.tasks.config import PasskeyConfig

# opening, filler, what states the key (once or twice), question
WORDINGS = {
    "full": (
        "One important fact is hidden in a lot of dull text. Find it and keep it in mind. I will ask you about it.",
        " The rain falls on the hill. The river runs to the sea. An old road goes on and on. Nothing is new today.",
        (" The pass key is", ". Remember it:", " is the pass key."),
        " What is the pass key? The pass key is",
    ),
    "compact": ("Find the key.", " Rain falls on the old hill.", (" The key is", "."), " The key is"),
}


class Passkey(Task):
    """A key stands somewhere in filler and is asked for at the end; depth is filler before it over all filler.

        |One important fact is hidden ...| The rain ...| The pass key is 40713. Remember it: 40713 is the pass key.|
        | The rain falls on the hill. ... Nothing is new today.| What is the pass key? The pass key is| 40713.|
        '- depth 0.1: a tenth of the filler stands before the key                              answer: -'------'

    Scored by greedy decoding: the first thing written must be the key, which something else than a digit ends, within
    as many tokens as the key has digits and two more. A guess scores 10^-digits.
    """

    name: ClassVar[str] = "passkey"
    measures: ClassVar[tuple[str, ...]] = ("accuracy", "forced_accuracy")

    def __init__(self, config: PasskeyConfig, tokenizer: Tokenizer, *, training: bool = False):
        super().__init__(config, tokenizer, training=training)
        opening, run, statement, question = WORDINGS[config.wording]
        self._opening, self._run, self._question = map(self.ids, (opening, run, question))
        self._statement = [self.ids(part) for part in statement]
        self._stop = self.ids(".")

    def cells(self, lengths: Sequence[int]) -> list[dict[str, Any]]:
        """Length by depth."""
        return [{"length": length, "depth": depth} for length in lengths for depth in self.config.depths]

    def shortest_length(self, parameters: Parameters) -> int:
        """Everything but filler; a key takes a token a byte at most."""
        fixed = sum(map(len, (self._opening, *self._statement, self._question, self._stop)))
        return fixed + len(self._statement) * (self.config.digits + 1)

    def draw(self, parameters: Parameters, random: np.random.Generator, seed: int, index: int) -> Example:
        """See ``Task``."""
        digits = self.config.digits
        key = f"{random.integers(10**digits):0{digits}}"
        key_ids = self.ids(f" {key}")
        statement = [self._statement[0]]
        for part in self._statement[1:]:
            statement += [key_ids, part]
        answer = np.concatenate([key_ids, self._stop])
        fixed = sum(map(len, (self._opening, *statement, self._question, answer)))
        free = parameters["length"] - fixed
        before = round(parameters["depth"] * free)
        after = filler(self._run, free - before)
        prompt = np.concatenate([self._opening, filler(self._run, before), *statement, after, self._question])
        return Example(prompt=prompt, answer=answer, target=key)

    def training_parameters(self, random: np.random.Generator, length: int, index: int) -> dict[str, Any]:
        """A random depth."""
        return {"length": length, "depth": float(random.random())}

    def tokens_to_write(self, example: Example) -> int:
        """As many as the key has digits, a space and a full stop."""
        return max(len(example.answer), len(example.target) + 2)

    def score(self, example: Example, forced: np.ndarray, written: np.ndarray) -> dict[str, float]:
        """Whether the first digits written are the key; and whether each of its tokens was likeliest in its place.

        A key after so much space that its end is not seen is wrong: more digits might have followed.
        """
        found = re.match(r"\s*([0-9]+)[^0-9]", self.text(written))
        key = len(example.answer) - len(self._stop)
        return {
            "accuracy": float(bool(found) and found.group(1) == example.target),
            "forced_accuracy": float(np.array_equal(forced[:key], example.answer[:key])),
        }

    def floors(self, parameters: Parameters, examples: Sequence[Example]) -> dict[str, float]:
        """Keys are drawn evenly: no constant is better than chance."""
        return {"chance": 10.0**-self.config.digits}
