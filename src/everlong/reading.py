"""Streamed reads of any length: the one place that executes a plan. Memory does not grow with the length read."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from everlong.models.language_model import LanguageModel, LanguageModelOutput
from everlong.ops.allocator import keep_freed_memory
from everlong.ops.cross_entropy import token_losses
from everlong.policies._plan import Policy, Read
from everlong.state import RecurrentState

TOKENS_AT_ONCE = 8192  # of all rows together: large enough for the matrix products, small enough for the caches
LOGITS_AT_ONCE = 1 << 26  # of all rows together: with a large vocabulary they are most of the memory
LONGEST_PIECE = 512  # tokens of one row at once


@torch.no_grad()
def losses(
    model: LanguageModel,
    documents: Sequence[np.ndarray],
    policy: Policy,
    spans: Sequence[tuple[int, int, int]],
    *,
    advance: Callable[[int], None] | None = None,
) -> list[np.ndarray]:
    """Negative log-likelihoods of targets under a policy of reading.

    Args:
        model: reads; its train or eval mode makes no difference.
        documents: token arrays.
        policy: how to read.
        spans: (document, first, last): targets x[first] .. x[last] of that document, both included.
        advance: told the tokens read, for progress.

    Returns:
        For each span, an array of last - first + 1 losses in nats.
    """
    keep_freed_memory()
    results = [np.full(last - first + 1, np.nan, dtype=np.float32) for _, first, last in spans]
    jobs = [
        (span, documents[document], read, first)
        for span, (document, first, last) in enumerate(spans)
        for read in policy.reads(first, last)
    ]
    jobs.sort(key=lambda job: -job[2].length)
    for batch in _batches(jobs, _tokens_at_once(model)):
        rows = [tokens[read.start : read.stop + 1] for _, tokens, read, _ in batch]
        for row, start, nats in _row_losses(model, rows, advance):
            span, _, read, first = batch[row]
            position = read.start + start + 1  # of the first target in nats
            skip = max(0, read.scored_from - position)
            at = position + skip - first
            results[span][at : at + max(0, len(nats) - skip)] = nats[skip:]
    return results


def tokens_to_read(policy: Policy, spans: Iterable[tuple[int, int, int]]) -> int:
    """How many tokens ``losses`` will read, for progress."""
    return sum(read.length for _, first, last in spans for read in policy.reads(first, last))


@torch.no_grad()
def states_at(
    model: LanguageModel, tokens: Int[Tensor, "B L"], positions: Sequence[int]
) -> Iterator[tuple[int, RecurrentState]]:
    """The states after the first t tokens, for each t of ``positions`` (ascending, 1 .. L), of one carried read."""
    start, state = 0, None
    for position in positions:
        for output in stream(model, tokens[:, start:position], state):
            state = output.state
        start = position
        assert state is not None, "positions ascend from 1"
        yield position, state


def stream(
    model: LanguageModel, tokens: Int[Tensor, "B L"], state: RecurrentState | None = None
) -> Iterator[LanguageModelOutput]:
    """Reads rows piece by piece, the state carried from each to the next; yields each piece's output."""
    piece = min(LONGEST_PIECE, max(1, _tokens_at_once(model) // tokens.shape[0]))
    for start in range(0, tokens.shape[1], piece):
        output = model(tokens[:, start : start + piece], state)
        state = output.state
        yield output


def _tokens_at_once(model: LanguageModel) -> int:
    return max(1, min(TOKENS_AT_ONCE, LOGITS_AT_ONCE // model.config.padded_vocab_size))


def _batches(
    jobs: list[tuple[int, np.ndarray, Read, int]], at_once: int
) -> Iterator[list[tuple[int, np.ndarray, Read, int]]]:
    start = 0
    while start < len(jobs):
        rows = max(1, at_once // min(jobs[start][2].length, LONGEST_PIECE // 2))
        yield jobs[start : start + rows]
        start += rows


def _row_losses(
    model: LanguageModel, rows: list[np.ndarray], advance: Callable[[int], None] | None
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Reads rows (longest first) side by side; yields (row, start of the piece, losses of its targets).

    A row that has ended reads padding to the end of the piece, which nothing before it sees, then leaves the batch.
    """
    lengths = [len(row) - 1 for row in rows]
    padded = np.zeros((len(rows), lengths[0] + 1), dtype=np.int64)
    for index, row in enumerate(rows):
        padded[index, : len(row)] = row
    tokens = torch.from_numpy(padded).to(model.device)
    state, start, active = None, 0, len(rows)
    at_once = _tokens_at_once(model)
    while active:
        piece = min(LONGEST_PIECE, max(1, at_once // active), lengths[0] - start)
        output = model(tokens[:active, start : start + piece], state)
        targets = tokens[:active, start + 1 : start + piece + 1]
        nats = token_losses(output.logits.flatten(0, 1), targets.flatten()).float()
        nats = nats.view(targets.shape).cpu().numpy()
        for row in range(active):
            yield row, start, nats[row, : lengths[row] - start]
        if advance:
            advance(sum(min(piece, lengths[row] - start) for row in range(active)))
        start += piece
        still = sum(length > start for length in lengths)
        state = output.state if still == active else output.state.rows(slice(still))
        active = still
