"""Settings of the tasks, free of torch."""

from dataclasses import dataclass, field
from typing import Any, Literal

from everlong.errors import EverlongError

LONGEST = 1 << 30  # tokens of a prompt, which is held in memory: 8 GB
QUESTIONS = tuple(f"qa{number}" for number in range(1, 11))


@dataclass(frozen=True, kw_only=True)
class PasskeyConfig:
    """A number hidden in dull text, to be said at the end."""

    depths: tuple[float, ...] = (0.1, 0.5, 0.9)
    """Passkey: filler before the key, as shares of all filler; in training the depth is random."""
    digits: int = 5
    """Passkey: digits of the key."""
    wording: Literal["full", "compact"] = "full"
    """Passkey: compact fits into 64 bytes and states the key once, full states it twice."""

    def __post_init__(self) -> None:
        _not_empty(depths=self.depths)
        for depth in self.depths:
            if not 0 <= depth <= 1:
                raise EverlongError(f"--depths {depth} is out of range; a depth lies between 0 and 1")
        if not 1 <= self.digits <= 18:
            raise EverlongError(f"--digits {self.digits} is out of range; a key has 1 to 18 digits")


@dataclass(frozen=True, kw_only=True)
class BABILongConfig:
    """bAbI's facts scattered in book text (Kuratov et al. 2024, arXiv 2406.10149)."""

    babilong: str | None = None
    """BABILong: the published sets instead, RMT-team/babilong on the hub or a folder laid out like it; lengths are then
    the set's own (0k, 1k, 2k, ...), in its tokens."""
    babi: str | None = None
    """BABILong: the folder of bAbI's files, qaN_..._train.txt and qaN_..._test.txt."""
    books: tuple[str, ...] = ()
    """BABILong: text to scatter the facts in, as in --data."""
    questions: tuple[str, ...] = QUESTIONS
    """BABILong: which of qa1 to qa10."""
    few_shot: bool = False
    """BABILong: begin with an instruction and two solved examples, for models that were not fine-tuned."""

    def __post_init__(self) -> None:
        if self.babilong and (self.babi or self.books):
            raise EverlongError(f"--babilong {self.babilong} has facts and books in one: give no --babi and --books")
        _not_empty(questions=self.questions)
        for name in self.questions:
            if name not in QUESTIONS:
                raise EverlongError(f"--questions {name} is unknown; known: {', '.join(QUESTIONS)}")


@dataclass(frozen=True, kw_only=True)
class CopyingConfig:
    """A string of letters to be written again (Jelassi et al. 2024, arXiv 2402.01032)."""

    copy_shortest: int = 50
    """Copying: letters of the shortest string in training."""
    copy_longest: int = 100
    """Copying: letters of the longest string in training."""

    def __post_init__(self) -> None:
        if not 1 <= self.copy_shortest <= self.copy_longest:
            raise EverlongError(
                f"--copy-shortest {self.copy_shortest}, --copy-longest {self.copy_longest}: 1 <= shortest <= longest"
            )


@dataclass(frozen=True, kw_only=True)
class RecallConfig:
    """Key-value facts in filler: how many, and how far back the one that is asked for."""

    facts: tuple[int, ...] = (2, 8, 16)
    """Recall: numbers of facts; in training one of them is drawn."""
    distances: tuple[int, ...] = ()
    """Recall: tokens from the end of the fact asked for to the question. None: the facts come first. In training the
    facts stand anywhere."""

    def __post_init__(self) -> None:
        _not_empty(facts=self.facts)
        for count in self.facts:
            if not 1 <= count <= 400:
                raise EverlongError(f"--facts {count} is out of range; give 1 to 400")
        for distance in self.distances:
            if distance < 0:
                raise EverlongError(f"--distances {distance} is out of range; give 0 or more tokens")


@dataclass(frozen=True, kw_only=True)
class TasksConfig:
    """The settings of all tasks; each takes its own."""

    passkey: PasskeyConfig = field(default_factory=PasskeyConfig)
    babilong: BABILongConfig = field(default_factory=BABILongConfig)
    copying: CopyingConfig = field(default_factory=CopyingConfig)
    recall: RecallConfig = field(default_factory=RecallConfig)


def _not_empty(**given: tuple[Any, ...]) -> None:
    for name, values in given.items():
        if not values:
            raise EverlongError(f"--{name} is empty; give one or more")


def parse_length(text: str) -> int:
    """A length as people write it: 300, 2k (2,048), 1m (1,048,576).

    Raises:
        EverlongError: no such thing, or more than can be held.
    """
    factor = {"k": 1 << 10, "m": 1 << 20}.get(text[-1:].lower(), 1)
    digits = text[:-1] if factor > 1 else text
    if not (digits.isascii() and digits.isdigit()):
        raise EverlongError(f"{text!r} is no length; give a number such as 300, 2k or 256k")
    length = int(digits) * factor if len(digits) < 20 else LONGEST + 1
    if length > LONGEST:
        raise EverlongError(f"a length of {text} is out of range; give at most {LONGEST >> 20}m")
    return length
