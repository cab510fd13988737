"""What every task is: a grid of cells, examples of an exact length, a scorer, and the floors of guessing."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from everlong.data.tokenizers import Tokenizer
from everlong.errors import EverlongError

Parameters = Mapping[str, Any]
ANCHORS = ("", "\n", "a", ".")


@dataclass(frozen=True, eq=False, kw_only=True)
class Example:
    """A prompt and what should follow it.

    Attributes:
        prompt: token ids, [T] int32.
        answer: token ids, [N] int32: the target and the full stop after it. The loss in training is on these alone.
        target: the answer in words, for the scorer.
        kind: which of the task's kinds it is, where it has several.
        question: what was asked, where the scorer needs it.
        options: what stands in the prompt that could be the answer, each as often as it stands there, in order.
    """

    prompt: np.ndarray
    answer: np.ndarray
    target: str
    kind: str = ""
    question: str = ""
    options: tuple[str, ...] = ()


class Task(ABC):
    """A task over a tokenizer.

    Args:
        config: its settings.
        tokenizer: of the model that is asked.
        training: examples to train on, none of which is one to be scored.

    Attributes:
        name: in the registry and in records.
        measures: what ``score`` gives; the first is the one that counts.
        length_is: what a cell's length counts.
    """

    name: ClassVar[str]
    measures: ClassVar[tuple[str, ...]]
    length_is: ClassVar[str] = "tokens of prompt and answer"

    def __init__(self, config: Any, tokenizer: Tokenizer, *, training: bool = False):
        self.config, self.tokenizer, self.training = config, tokenizer, training

    @abstractmethod
    def cells(self, lengths: Sequence[int]) -> list[dict[str, Any]]:
        """The parameters of every cell of the grid over these lengths; all are keyword arguments of ``example``."""

    @abstractmethod
    def shortest_length(self, parameters: Parameters) -> int:
        """The shortest length at which every example of these parameters (but for their length) fits."""

    def tokens(self, length: int) -> int:
        """Tokens of prompt and answer together, at a length."""
        return length

    def example(self, parameters: Parameters, *, seed: int, index: int) -> Example:
        """Example number ``index`` of a cell: a function of settings, tokenizer, parameters, seed and index.

        Raises:
            EverlongError: the cell's length is shorter than the shortest.
        """
        self.check_fits(parameters)
        words = json.dumps([self.name, self.training, dict(parameters)], sort_keys=True).encode()
        stream = int.from_bytes(hashlib.sha256(words).digest()[:8], "little")
        example = self.draw(parameters, np.random.default_rng((seed, stream, index)), seed, index)
        found, wanted = len(example.prompt) + len(example.answer), self.tokens(parameters["length"])
        assert found == wanted, f"{self.name} made {found} tokens where {wanted} were asked for"
        return example

    def check_fits(self, parameters: Parameters) -> None:
        """Refuses a cell whose length is shorter than the shortest.

        Raises:
            EverlongError: it is; both are named.
        """
        shortest = self.shortest_length(parameters)
        if parameters["length"] < shortest:
            raise EverlongError(
                f"{self.name} does not fit into a length of {parameters['length']:,} ({self.length_is}): with "
                f"tokenizer {self.tokenizer.name} and {_words(parameters)} it needs {shortest:,}"
            )

    @abstractmethod
    def draw(self, parameters: Parameters, random: np.random.Generator, seed: int, index: int) -> Example:
        """Makes an example that is known to fit; ``random`` is its own stream."""

    def training_length(self, random: np.random.Generator, context: int) -> int:
        """The length of all examples of one batch: here such that a row reads ``context`` tokens."""
        return context + 1

    def training_cells(self, length: int) -> list[dict[str, Any]]:
        """The kinds of parameters that ``training_parameters`` draws from, so that what does not fit is seen early."""
        return self.cells((length,))

    @abstractmethod
    def training_parameters(self, random: np.random.Generator, length: int, index: int) -> dict[str, Any]:
        """The parameters of training example number ``index``, drawn."""

    @abstractmethod
    def score(self, example: Example, forced: np.ndarray, written: np.ndarray) -> dict[str, float]:
        """What a model made of an example, each measure between 0 and 1.

        Args:
            example: what was asked.
            forced: the likeliest token at each position of the answer, where the model reads the right answer.
            written: tokens that the model wrote after the prompt, greedily; fewer where it could not go on.
        """

    def tokens_to_write(self, example: Example) -> int:
        """How many tokens a model is let write."""
        return len(example.answer)

    @abstractmethod
    def floors(self, parameters: Parameters, examples: Sequence[Example]) -> dict[str, float]:
        """What guessing scores by the first measure: by chance, and by the best constant answer."""

    def notes(self, parameters: Parameters) -> tuple[str, ...]:
        """What a reader of the cell's score must know."""
        return ()

    def fingerprint(self, parameters: Parameters) -> str:
        """Of everything but parameters and seed that an example of a cell depends on, in hex."""
        settings = [self.name, self.training, asdict(self.config), self.data_fingerprint(parameters)]
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def data_fingerprint(self, parameters: Parameters) -> str:
        """Of the texts that a cell is made from, where it reads any."""
        return ""

    def ids(self, text: str) -> np.ndarray:
        """The tokens of a piece of an example. Pieces are encoded one by one, so that lengths add up.

        Of a tokenizer that begins every text with a space (SentencePiece) they are those of the piece in the middle of
        a text, as it stands here: else there would be a space before each full stop.
        """
        return _after(self.tokenizer, self._anchor, text)

    @cached_property
    def _anchor(self) -> str:
        """A text after which this tokenizer puts no space before a piece; none, where it puts none anyway."""
        letter = self.tokenizer.encode("a")
        for anchor in ANCHORS:
            if self.tokenizer.decode(np.concatenate([letter, _after(self.tokenizer, anchor, ".")])) == "a.":
                return anchor
        return ANCHORS[0]

    def text(self, ids: np.ndarray) -> str:
        """The text of tokens that a model wrote; what the tokenizer does not know is left out."""
        return self.tokenizer.decode(ids[ids < self.tokenizer.vocab_size])


def _after(tokenizer: Tokenizer, anchor: str, text: str) -> np.ndarray:
    """The tokens of a text that stands after another, or of the text alone where the two cannot be told apart."""
    if not anchor:
        return tokenizer.encode(text)
    before, both = tokenizer.encode(anchor), tokenizer.encode(anchor + text)
    parted = np.array_equal(both[: len(before)], before) and len(both) > len(before)
    return both[len(before) :] if parted else tokenizer.encode(text)


def _words(parameters: Parameters) -> str:
    return ", ".join(f"{name} {value}" for name, value in parameters.items() if name != "length") or "its settings"
