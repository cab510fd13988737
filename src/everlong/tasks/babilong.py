"""BABILong (Kuratov et al. 2024, arXiv 2406.10149), built from bAbI's facts and the text of books."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from everlong.data._permutation import permutation
from everlong.data.tokenizers import Tokenizer
from everlong.errors import EverlongError
from everlong.tasks._babi import Question, read_questions
from everlong.tasks._books import Books
from everlong.tasks._labels import named, right
from everlong.tasks._published import Published
from everlong.tasks._shots import SHOTS
from everlong.tasks._task import Example, Parameters, Task
from everlong.tasks.config import BABILongConfig

TOKENS_TO_WRITE = 20  # the official number


class BABILong(Task):
    r"""Facts in their order at random places between the sentences of a book, and a question at the end.

        | The fog was thick that night.| Mary went to the office.| He lit his pipe again.| John got the milk.|
                                         '-------- fact --------'                         '----- fact -----'
        | She had not slept.| ...|\nQuestion: Where is Mary?\nAnswer:| office.|

    At length 0 there is no book, only facts ("0k"). Of the test file, questions whose facts do not fit a length are
    left out, which the cell's notes say. Scored by the official rule on 20 greedy tokens: right if of the task's
    labels, but for those in the question, exactly the target is named before the first full stop.
    """

    name: ClassVar[str] = "babilong"
    measures: ClassVar[tuple[str, ...]] = ("accuracy", "accuracy_by_words", "valid", "forced_accuracy")

    def __init__(self, config: BABILongConfig, tokenizer: Tokenizer, *, training: bool = False):
        super().__init__(config, tokenizer, training=training)
        self._published = Published(config.babilong) if config.babilong else None
        self._questions: dict[str, tuple[Question, ...]] = {}
        if config.babi is not None:
            self._questions = {name: read_questions(config.babi, name, training=training) for name in config.questions}
        elif self._published is None or training:
            also = ", or --babilong RMT-team/babilong" if not training else " (the published sets are of other lengths)"
            raise EverlongError(f"babilong needs bAbI's facts: give --babi DIR, and --books TEXT{also}")
        self._books = Books(config.books) if config.books else None
        self._stop = self.ids(".")
        self._sizes: dict[str, np.ndarray] = {}

    def cells(self, lengths: Sequence[int]) -> list[dict[str, Any]]:
        """Length by question."""
        return [{"length": length, "question": name} for length in lengths for name in self.config.questions]

    def shortest_length(self, parameters: Parameters) -> int:
        """The length at which half of the questions fit; 0 stands for no book at all. Published samples have theirs."""
        if self._published:
            return 0
        return 0 if parameters["length"] == 0 else int(np.median(self._needed(parameters["question"])))

    def example(self, parameters: Parameters, *, seed: int, index: int) -> Example:
        """See ``Task``; at length 0 an example is as long as its facts, and a published one is as long as it is."""
        if self._published:
            return self._of_set(
                self._published.samples(parameters["question"], parameters["length"]), index, parameters
            )
        if parameters["length"]:
            if self._books is None:
                raise EverlongError("babilong needs text to scatter the facts in: give --books TEXT, or --lengths 0")
            return super().example(parameters, seed=seed, index=index)
        return self.draw(parameters, np.random.default_rng((seed, index)), seed, index)

    def draw(self, parameters: Parameters, random: np.random.Generator, seed: int, index: int) -> Example:
        """The question is the next of a shuffled list of those that fit: in training each once an epoch, else once."""
        name, length = parameters["question"], parameters["length"]
        fitting = self._fitting(name, length)
        if self.training:
            index //= len(self.config.questions)  # the tasks take turns
        elif index >= len(fitting):  # the same again would count as one more example, which it is not
            raise EverlongError(
                f"--babi has {len(fitting):,} questions of {name} at a length of {length:,}: give --examples "
                f"{len(fitting)} or fewer"
            )
        epoch, place = divmod(index, len(fitting))
        question = self._questions[name][fitting[permutation(len(fitting), seed, epoch)[place]]]
        start, facts, end, answer = self._pieces(name, question)
        sentences: list[np.ndarray] = []
        if length:
            assert self._books is not None
            free = length - sum(map(len, (*start, *facts, *end, answer)))
            sentences = self._books.sentences(random, free, self.ids)
        mixed, position = start, 0
        for fact, place in zip(facts, np.sort(random.integers(len(sentences) + 1, size=len(facts))), strict=True):
            mixed += [*sentences[position:place], fact]
            position = int(place)
        return Example(
            prompt=np.concatenate([*mixed, *sentences[position:], *end]),
            answer=answer,
            target=question.answer,
            kind=name,
            question=question.question,
        )

    def _of_set(self, samples: Sequence[Question], index: int, parameters: Parameters) -> Example:
        """Sample number ``index``, in the set's order; every sample is asked once at most."""
        name = parameters["question"]
        if index >= len(samples):
            raise EverlongError(
                f"--babilong has {len(samples):,} samples of {name} at {parameters['length']:,} tokens: give "
                f"--examples {len(samples)} or fewer"
            )
        sample = samples[index]
        start, text, end, answer = self._pieces(name, sample)
        return Example(
            prompt=np.concatenate([*start, *text, *end]),
            answer=answer,
            target=sample.answer,
            kind=name,
            question=sample.question,
        )

    def training_parameters(self, random: np.random.Generator, length: int, index: int) -> dict[str, Any]:
        """The tasks take turns, so that an epoch holds every question once."""
        return {"length": length, "question": self.config.questions[index % len(self.config.questions)]}

    def tokens_to_write(self, example: Example) -> int:
        """Twenty, or the answer where it is longer (a list in bytes)."""
        return max(TOKENS_TO_WRITE, len(example.answer))

    def score(self, example: Example, forced: np.ndarray, written: np.ndarray) -> dict[str, float]:
        """The official rule, the same by whole words, and whether any label was named at all."""
        output, task = self.text(written), example.kind
        official = named(task, output, example.question, words=False)
        by_words = named(task, output, example.question, words=True)
        label = len(example.answer) - len(self._stop)
        return {
            "accuracy": float(right(example.target, official)),
            "accuracy_by_words": float(right(example.target, by_words)),
            "valid": float(bool(by_words)),
            "forced_accuracy": float(np.array_equal(forced[:label], example.answer[:label])),
        }

    def floors(self, parameters: Parameters, examples: Sequence[Example]) -> dict[str, float]:
        """The best constant answer over all questions that fit, by the official rule."""
        name, length = parameters["question"], parameters["length"]
        if self._published:
            questions: Sequence[Question] = self._published.samples(name, length)
        else:
            questions = [self._questions[name][place] for place in self._fitting(name, length)]
        scores = Counter()
        for answer in {question.answer for question in questions}:
            for question in questions:
                scores[answer] += right(question.answer, named(name, answer, question.question, words=False))
        return {"most frequent": max(scores.values()) / len(questions)}

    def notes(self, parameters: Parameters) -> tuple[str, ...]:
        """Questions left out; whose tokens a published length counts."""
        if self._published:
            return ("the length is the published set's own, in the tokens that it counts",)
        name = parameters["question"]
        everything, fitting = len(self._questions[name]), len(self._fitting(name, parameters["length"]))
        if fitting == everything:
            return ()
        return (f"{everything - fitting:,} of {everything:,} questions have more facts than fit and are left out",)

    def data_fingerprint(self, parameters: Parameters) -> str:
        """Of the questions and the books."""
        if self._published:
            return self._published.fingerprint(parameters["question"], parameters["length"])
        digest = hashlib.sha256(repr(sorted(self._questions.items())).encode())
        for document in self._books.documents if self._books else ():
            digest.update(hashlib.sha256(document.text.encode()).digest())
        return digest.hexdigest()

    def _pieces(
        self, name: str, question: Question
    ) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray], np.ndarray]:
        """What comes before the book, the facts, what comes after the book, and the answer."""
        start = [self._start(name)] if self.config.few_shot else []
        # a published sample's text is read once and would fill the memory that facts are kept in
        facts = [self.ids(f" {fact}") if self._published else self._fact(fact) for fact in question.facts]
        end = [self.ids(f"\nQuestion: {question.question}\nAnswer:")]
        return start, facts, end, np.concatenate([self.ids(f" {question.answer}"), self._stop])

    def _start(self, name: str) -> np.ndarray:
        return self._cached(f"{SHOTS[name]}\n")

    def _fact(self, text: str) -> np.ndarray:
        return self._cached(f" {text}")

    def _cached(self, text: str) -> np.ndarray:
        if text not in self._encoded:
            self._encoded[text] = self.ids(text)
        return self._encoded[text]

    @cached_property
    def _encoded(self) -> dict[str, np.ndarray]:
        return {}  # bAbI says a few hundred different things

    def _needed(self, name: str) -> np.ndarray:
        """Tokens of each question with its facts and answer."""
        if name not in self._sizes:
            sizes = []
            for question in self._questions[name]:
                start, facts, end, answer = self._pieces(name, question)
                sizes.append(sum(map(len, (*start, *facts, *end, answer))))
            self._sizes[name] = np.array(sizes)
        return self._sizes[name]

    def _fitting(self, name: str, length: int) -> np.ndarray:
        needed = self._needed(name)
        return np.flatnonzero(needed <= length) if length else np.arange(len(needed))
