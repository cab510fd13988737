"""What every measure is given, and how it says what it rests on."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from everlong.data.corpus import Corpus
from everlong.diagnostics._panel import Panel, select_panel
from everlong.errors import EverlongError
from everlong.models.language_model import LanguageModel
from everlong.progress import Progress, Task
from everlong.records.measurements import Basis
from everlong.state import StateSpec

FEWEST_ROWS = 2  # a law needs two documents at the least


class Work:
    """Counts the tokens that a measure reads, and the time it takes."""

    def __init__(self, task: Task):
        self._task, self.tokens, self._started = task, 0, time.monotonic()

    def advance(self, tokens: int) -> None:
        """Counts tokens as read."""
        self.tokens += tokens
        self._task.advance(tokens)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._started


@dataclass(frozen=True, kw_only=True)
class Examination:
    """A model and the text that it is examined on: the first argument of every measure.

    Attributes:
        model: in any mode, on any device.
        panel: held-out rows; two never come from one document.
        context: the training length in tokens.
        length: how far to read, in tokens.
        data_fingerprint: of the held-out documents.
        label: before, or the method that made the model.
        model_name: where the model came from.
        confidence: of the intervals.
        tolerance: excess in nats that does not count as harm.
        seed: of all that is drawn.
        progress: where to report to.
    """

    model: LanguageModel
    panel: Panel
    context: int
    length: int
    data_fingerprint: str
    label: str
    model_name: str
    confidence: float
    tolerance: float
    seed: int
    progress: Progress

    @property
    def full_rows(self) -> tuple[np.ndarray, ...]:
        """The rows that are as long as the length: laws at two positions are of the same documents.

        Raises:
            EverlongError: there are too few.
        """
        rows = tuple(self.panel.rows[index] for index in self.panel.full(self.length))
        if len(rows) < FEWEST_ROWS:
            raise EverlongError(
                f"{len(rows)} held-out documents are longer than --max-length {self.length}, {FEWEST_ROWS} are needed "
                "to speak of the law of the state: give longer documents or a smaller --max-length"
            )
        return rows

    @contextmanager
    def work(self, name: str, tokens: int) -> Iterator[Work]:
        """Progress over a measure that reads so many tokens."""
        with self.progress.task(f"{name}, {self.label}", total=tokens) as task:
            yield Work(task)

    def basis(self, work: Work, *, full_only: bool = False) -> Basis:
        """What the measurement rests on; ``full_only``: on the rows of the whole length alone."""
        model, panel = self.model, self.panel
        rows = panel.full(self.length) if full_only else range(len(panel.rows))
        return Basis(
            label=self.label,
            model=self.model_name,
            architecture=model.config.architecture,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            context=self.context,
            length=self.length,
            documents=tuple(panel.names[row] for row in rows),
            document_tokens=tuple(len(panel.rows[row]) for row in rows),
            offsets=tuple(panel.offsets[row] for row in rows),
            data_fingerprint=self.data_fingerprint,
            confidence=self.confidence,
            tolerance=self.tolerance,
            seed=self.seed,
            backend=model.backend_in_use(),
            device=str(model.device),
            dtype=str(model.dtype).removeprefix("torch."),
            tokens_read=work.tokens,
            seconds=work.seconds,
        )


def examination(
    model: LanguageModel,
    held_out: Corpus,
    *,
    context: int,
    length: int,
    documents: int,
    label: str,
    model_name: str,
    confidence: float,
    tolerance: float,
    seed: int,
    progress: Progress,
) -> Examination:
    """Chooses the rows; equal seeds and texts give equal rows, those that ``diagnose`` reads.

    Raises:
        EverlongError: the length is not beyond the context, or no document is.
    """
    if length <= context:
        raise EverlongError(f"--max-length {length} is not beyond the training context of {context} tokens")
    return Examination(
        model=model,
        panel=select_panel(held_out, context=context, length=length, documents=documents, seed=seed),
        context=context,
        length=length,
        data_fingerprint=held_out.fingerprint,
        label=label,
        model_name=model_name,
        confidence=confidence,
        tolerance=tolerance,
        seed=seed,
        progress=progress,
    )


def state_bytes(spec: StateSpec) -> int:
    """Bytes of the state of one row."""
    return sum(int(np.prod(leaf.shape)) * leaf.dtype.itemsize for leaf in spec.leaves)


def rows_within(model: LanguageModel, memory_gib: float) -> int:
    """How many rows may be read side by side: three states of each, before, after and between, within the memory."""
    return max(2, int(memory_gib * 2**30 / (3 * state_bytes(model.state_spec))))


def log_positions(context: int, length: int, per_octave: int) -> tuple[int, ...]:
    """Positions spaced logarithmically from 1 to the length, with T/2 + 1, T and T + 1: D_{T/2}, D_{T-1} and D_T."""
    count = int(np.log2(length) * per_octave) + 2
    grid = np.geomspace(1, length, count).round().astype(int)
    return tuple(sorted({*map(int, grid), context // 2 + 1, context, min(context + 1, length)}))
