"""Recall under load (ours): is the state full, or is it strange?"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from everlong.data.tokenizers import Tokenizer
from everlong.tasks._filler import filler
from everlong.tasks._task import Example, Parameters, Task
from everlong.tasks.config import RecallConfig

CONSONANTS = "bcdfghjklmnpqrstvwxz"
KEYS = tuple(a + b for a in CONSONANTS for b in CONSONANTS)
VALUES = tuple("0123456789")
FILLER = " The rain falls on the hill. The river runs to the sea. An old road goes on and on. Nothing is new today."


class Recall(Task):
    """Facts that bind keys to values, all in one place in filler, and a question about one of them.

        |... An old road goes on and on.| bk is 7. zt is 3. qd is 7.| The rain falls ... new today.| zt is| 3.|
                                         '------ facts: 3 ------'                                '-answer-'
                                                          '---------- distance, in tokens -------'

    The number of facts (the load), the distance of the one asked for (its age) and the length (how much was read in
    all) are swept apart. More facts than the state can hold are lost at any distance: no repair of the state mends
    that. Few facts that are lost only where the whole is long are a matter of strange states: that a repair should
    mend. Bindings are drawn anew in every example, values as evenly as they go, and the question by its value: so the
    most frequent value of an example is no better a guess than any other.
    """

    name: ClassVar[str] = "recall"
    measures: ClassVar[tuple[str, ...]] = ("accuracy", "valid", "forced_accuracy")

    def __init__(self, config: RecallConfig, tokenizer: Tokenizer, *, training: bool = False):
        super().__init__(config, tokenizer, training=training)
        self._run, self._stop = self.ids(FILLER), self.ids(".")
        self._keys = [self.ids(f" {key} is") for key in KEYS]
        self._values = [self.ids(f" {value}") for value in VALUES]
        self._longest = max(map(len, self._keys)) + max(map(len, self._values)) + len(self._stop)  # of a fact

    def cells(self, lengths: Sequence[int]) -> list[dict[str, Any]]:
        """Length by number of facts by distance."""
        return [
            {"length": length, "facts": facts, "distance": distance}
            for length in lengths
            for facts in self.config.facts
            for distance in (self.config.distances or (None,))
        ]

    def shortest_length(self, parameters: Parameters) -> int:
        """The facts, the distance, and the question with its answer."""
        return (parameters["facts"] + 1) * self._longest + (parameters["distance"] or 0)

    def draw(self, parameters: Parameters, random: np.random.Generator, seed: int, index: int) -> Example:
        """See ``Task``."""
        count, distance = parameters["facts"], parameters["distance"]
        keys = random.permutation(len(KEYS))[:count]
        turns = random.permutation(len(VALUES))
        values = random.permutation([turns[place % len(VALUES)] for place in range(count)])
        value = random.choice(np.unique(values))
        asked = int(random.choice(np.flatnonzero(values == value)))
        # No more facts may stand behind the one asked for than fit into the distance.
        behind = count - 1 if distance is None else min(count - 1, distance // self._longest)
        place = int(random.integers(count - 1 - behind, count))
        values[[asked, place]] = values[[place, asked]]
        asked = place
        facts = [
            np.concatenate([self._keys[key], self._values[value], self._stop])
            for key, value in zip(keys, values, strict=True)
        ]
        question = self._keys[keys[asked]]
        answer = np.concatenate([self._values[value], self._stop])
        free = parameters["length"] - sum(map(len, (*facts, question, answer)))
        between = sum(map(len, facts[asked + 1 :]))
        after = free  # the facts come first
        if distance is not None:
            after = distance - between
        elif self.training:  # anywhere
            after = int(random.integers(free + 1))
        prompt = [filler(self._run, free - after), *facts, filler(self._run, after), question]
        return Example(
            prompt=np.concatenate(prompt),
            answer=answer,
            target=VALUES[value],
            options=tuple(VALUES[value] for value in values),
        )

    def training_cells(self, length: int) -> list[dict[str, Any]]:
        """The numbers of facts; distances are not trained on."""
        return [{"length": length, "facts": facts, "distance": None} for facts in self.config.facts]

    def training_parameters(self, random: np.random.Generator, length: int, index: int) -> dict[str, Any]:
        """One of the numbers of facts, standing anywhere."""
        return {"length": length, "facts": int(random.choice(self.config.facts)), "distance": None}

    def tokens_to_write(self, example: Example) -> int:
        """The value, a space and a full stop."""
        return max(len(example.answer), 3)

    def score(self, example: Example, forced: np.ndarray, written: np.ndarray) -> dict[str, float]:
        """Whether the first thing written is the value, its end seen; and whether it is any value of the prompt."""
        found = re.match(r"\s*([0-9])[^0-9]", self.text(written))
        said = found.group(1) if found else ""
        value = len(example.answer) - len(self._stop)
        return {
            "accuracy": float(said == example.target),
            "valid": float(said in example.options),
            "forced_accuracy": float(np.array_equal(forced[:value], example.answer[:value])),
        }

    def floors(self, parameters: Parameters, examples: Sequence[Example]) -> dict[str, float]:
        """What is right over these examples of a guess among the prompt's values, of the most frequent and of the last.

        The last value is right wherever the fact asked for is the nearest, as it must be where the distance is shorter
        than another fact.
        """
        chance, frequent, last = [], [], []
        for example in examples:
            counts = Counter(example.options)
            best = [value for value, count in counts.items() if count == max(counts.values())]
            chance.append(1 / len(counts))
            frequent.append((example.target in best) / len(best))
            last.append(example.target == example.options[-1])
        means = {"chance": chance, "most frequent": frequent, "last value": last}
        return {name: float(np.mean(of_all)) for name, of_all in means.items()}
