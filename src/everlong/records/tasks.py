"""Records of tasks: scores by cell."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from everlong.records._record import Record


@dataclass(frozen=True, kw_only=True)
class Score(Record):
    """A mean over examples, with its interval."""

    mean: float
    lower: float
    upper: float


@dataclass(frozen=True, kw_only=True)
class TaskCell(Record):
    """A model on one cell of a task's grid."""

    task: str
    parameters: dict[str, Any]
    """Length, depth, question, ...: what the examples have in common."""
    examples: int
    tokens_read: int
    """Of all prompts together."""
    scores: dict[str, Score]
    """Measure -> its mean; the first measure is the one that counts. Wilson's interval where a score is right or wrong,
    else Student's t. ``nats`` is the loss a token of the answer."""
    floors: dict[str, float]
    """What guessing scores by the first measure: by chance, and by the best constant answer."""
    values: dict[str, np.ndarray]
    """Measure -> [examples]."""
    notes: tuple[str, ...]
    """What a reader of the scores must know."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TaskEvaluation(Record):
    """A model on all cells of a task's grid."""

    task: str
    measures: tuple[str, ...]
    length_is: str
    """What a cell's length counts."""
    settings: dict[str, Any]
    model: str
    architecture: str
    parameters: int
    context: int | None
    """The training length in tokens; None: not known."""
    tokenizer: str
    cells: tuple[TaskCell, ...]
    confidence: float
    seed: int
    backend: str
    device: str
    dtype: str
    seconds: float
