"""A model on a cell of a task: prompts of any length are streamed, each beside others, in memory that does not grow."""

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from everlong.models.generation import LONGEST_PIECE, TOKENS_AT_ONCE, Writer, read_prefix, read_prompts
from everlong.models.language_model import LanguageModel
from everlong.reading import read_answers
from everlong.records.tasks import Score, TaskCell
from everlong.tasks._intervals import interval
from everlong.tasks._task import Example, Parameters, Task

NATS = "nats"
NOTHING = -1  # in the place of a token


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

    Each prompt is read once, from the zero state, and what all prompts of the cell begin with once for all. From the
    state after it the model writes greedily, and once more it reads the right answer (teacher-forced). Where its logits
    are not finite it writes nothing more, and has no likeliest token: that is wrong, and the cell's notes say so.

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
    common, broken = _common(examples), 0
    before = read_prefix(model, torch.from_numpy(examples[0].prompt[:common].astype(np.int64)))
    if advance:
        advance(common * len(examples))
    for batch in _batches(examples):
        prompts = [torch.from_numpy(example.prompt[common:].astype(np.int64)) for example in batch]
        logits, state = read_prompts(model, prompts, before, advance=advance)
        forced, losses = read_answers(model, logits, state, [example.answer for example in batch])
        writer = Writer(model, logits, state, known=task.tokenizer.vocab_size)
        written = _written(writer, list(map(task.tokens_to_write, batch)))
        for example, likeliest, nats, said in zip(batch, forced, losses, written, strict=True):
            finite = np.isfinite(nats)
            broken += not finite.all() or len(said) < task.tokens_to_write(example)
            scores = task.score(example, np.where(finite, likeliest, NOTHING), said)
            scores[NATS] = float(nats.mean()) if finite.all() else float("nan")
            for name, value in scores.items():
                values.setdefault(name, []).append(value)
    notes = task.notes(parameters)
    if broken:
        notes += (f"{broken} of {len(examples)} examples came to logits that are not finite, which counts as wrong",)
    arrays = {name: np.array(of_all) for name, of_all in values.items()}
    return TaskCell(
        task=task.name,
        parameters=dict(parameters),
        examples=len(examples),
        tokens_read=sum(len(example.prompt) for example in examples),
        scores={name: _score(array, confidence, bounded=name != NATS) for name, array in arrays.items()},
        floors=task.floors(parameters, examples),
        values=arrays,
        notes=notes,
        seconds=time.monotonic() - started,
    )


def _batches(examples: Sequence[Example]) -> Iterator[Sequence[Example]]:
    longest = max(len(example.prompt) for example in examples)
    rows = max(1, TOKENS_AT_ONCE // min(longest, LONGEST_PIECE))
    for start in range(0, len(examples), rows):
        yield examples[start : start + rows]


def _common(examples: Sequence[Example]) -> int:
    """How many tokens all prompts begin with; one token at least is left of each, and all of a single one."""
    first = examples[0].prompt
    common = min(len(example.prompt) for example in examples) - 1 if len(examples) > 1 else 0
    for example in examples[1:]:
        differ = np.flatnonzero(example.prompt[:common] != first[:common])
        common = int(differ[0]) if len(differ) else common
    return common


def _written(writer: Writer, counts: Sequence[int]) -> list[np.ndarray]:
    """What the model writes after each row: so many tokens, or as many as it has finite logits for."""
    written: list[list[int]] = [[] for _ in counts]
    for _ in range(max(counts)):
        writer.end(writer.broken())
        for row, token in writer.step() if writer.rows else ():
            written[row].append(token)
    return [np.array(row[:count], dtype=np.int64) for row, count in zip(written, counts, strict=True)]


def _score(values: np.ndarray, confidence: float, *, bounded: bool) -> Score:
    if len(values) < 2 and not np.isin(values, (0.0, 1.0)).all():
        return Score(mean=float(values.mean()), lower=float("nan"), upper=float("nan"))
    lower, upper = interval(values, confidence, bounded=bounded)
    return Score(mean=float(values.mean()), lower=lower, upper=upper)
