"""A model on a cell of a task: prompts of any length are streamed, each beside others, in memory that does not grow."""

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from everlong.models.generation import LONGEST_PIECE, TOKENS_AT_ONCE, Writer, read_prompts
from everlong.models.language_model import LanguageModel
from everlong.reading import read_answers
from everlong.records.tasks import Score, TaskCell
from everlong.state import RecurrentState
from everlong.tasks._intervals import interval
from everlong.tasks._task import Example, Parameters, Task

NATS = "nats"


@torch.no_grad()
def evaluate(
    model: LanguageModel,
    task: Task,
    parameters: Parameters,
    examples: Sequence[Example],
    *,
    confidence: float,
    advance: Callable[[int], None] | None = None,
) -> TaskCell:
    """Scores a model on the examples of one cell.

    Each prompt is read once, from the zero state. From the state after it the model writes greedily, and once more it
    reads the right answer (teacher-forced).

    Args:
        model: any mode, any device.
        task: scores.
        parameters: of the cell.
        examples: of the cell.
        confidence: of the intervals.
        advance: told the tokens of the prompts read, for progress.
    """
    started = time.monotonic()
    values: dict[str, list[float]] = {}
    for batch in _batches(examples):
        prompts = [torch.from_numpy(example.prompt.astype(np.int64)) for example in batch]
        logits, state = read_prompts(model, prompts, advance=advance)
        forced, losses = read_answers(model, logits, state, [example.answer for example in batch])
        written = _written(model, logits, state, max(map(task.tokens_to_write, batch)))
        for place, example in enumerate(batch):
            said = written[place, : task.tokens_to_write(example)]
            scores = {**task.score(example, forced[place], said), NATS: float(losses[place].mean())}
            for name, value in scores.items():
                values.setdefault(name, []).append(value)
    arrays = {name: np.array(of_all) for name, of_all in values.items()}
    return TaskCell(
        task=task.name,
        parameters=dict(parameters),
        examples=len(examples),
        tokens_read=sum(len(example.prompt) for example in examples),
        scores={name: _score(array, confidence, bounded=name != NATS) for name, array in arrays.items()},
        floors=task.floors(parameters, examples),
        values=arrays,
        notes=task.notes(parameters),
        seconds=time.monotonic() - started,
    )


def _batches(examples: Sequence[Example]) -> Iterator[Sequence[Example]]:
    longest = max(len(example.prompt) for example in examples)
    rows = max(1, TOKENS_AT_ONCE // min(longest, LONGEST_PIECE))
    for start in range(0, len(examples), rows):
        yield examples[start : start + rows]


def _written(model: LanguageModel, logits: Tensor, state: RecurrentState, count: int) -> np.ndarray:
    """[rows, count]: what the model writes greedily."""
    writer = Writer(model, logits, state)
    return np.array([[token for _, token in writer.step()] for _ in range(count)], dtype=np.int64).T


def _score(values: np.ndarray, confidence: float, *, bounded: bool) -> Score:
    if len(values) < 2 and not np.isin(values, (0.0, 1.0)).all():
        return Score(mean=float(values.mean()), lower=float("nan"), upper=float("nan"))
    lower, upper = interval(values, confidence, bounded=bounded)
    return Score(mean=float(values.mean()), lower=lower, upper=upper)
