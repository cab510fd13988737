"""Streamed reads of any length: the one place that executes a plan. Memory does not grow with the length read.

A likelihood is always that of the softmax over all of a model's logits, those of rows that only pad the embedding
included: so training's loss is computed, and so a document's sum is that of one forward over it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from everlong.errors import EverlongError
from everlong.models.generation import LONGEST_PIECE, TOKENS_AT_ONCE, known_ids
from everlong.models.language_model import LanguageModel, LanguageModelOutput
from everlong.ops.allocator import keep_freed_memory
from everlong.ops.cross_entropy import token_losses
from everlong.policies._plan import Policy, Read
from everlong.state import RecurrentState, concatenate

LOGITS_AT_ONCE = 1 << 26  # of all rows together: with a large vocabulary they are most of the memory


@dataclass(frozen=True)
class _Row:
    """One read, for all the spans that share it: reads of one document from one start are prefixes of the longest."""

    tokens: np.ndarray
    start: int
    stop: int
    recentre_every: int | None
    spans: list[tuple[int, int, Read]]
    """Index of the span, its first target, and the read that scores a part of it."""


@torch.no_grad()
def losses(
    model: LanguageModel,
    documents: Sequence[np.ndarray],
    policy: Policy,
    spans: Sequence[tuple[int, int, int]],
    *,
    calibration: Sequence[np.ndarray] = (),
    advance: Callable[[int], None] | None = None,
) -> list[np.ndarray]:
    """Negative log-likelihoods of targets under a policy of reading.

    Args:
        model: reads; its train or eval mode makes no difference.
        documents: token arrays.
        policy: how to read.
        spans: (document, first, last): targets x[first] .. x[last] of that document, both included.
        calibration: token arrays of other documents, where the policy recentres: the means are over these.
        advance: told the tokens read (those of the calibration left out), for progress.

    Returns:
        For each span, an array of last - first + 1 losses in nats.

    Raises:
        EverlongError: the policy recentres, and the calibration is missing or shorter than what is read.
    """
    keep_freed_memory()
    results = [np.full(last - first + 1, np.nan, dtype=np.float32) for _, first, last in spans]
    rows = sorted(_rows(documents, policy, spans), key=lambda row: row.start - row.stop)
    for batch in _batches(rows, _tokens_at_once(model)):
        for row, start, nats in _row_losses(model, batch, calibration, advance):
            for span, first, read in batch[row].spans:
                position = read.start + start + 1  # of the first target in nats
                begin, end = max(read.scored_from, position), min(read.stop, position + len(nats) - 1)
                if begin <= end:
                    results[span][begin - first : end - first + 1] = nats[begin - position : end - position + 1]
    return results


def tokens_to_read(policy: Policy, spans: Iterable[tuple[int, int, int]]) -> int:
    """How many tokens ``losses`` will read, for progress."""
    longest: dict[tuple[int, int], int] = {}
    for document, first, last in spans:
        for read in policy.reads(first, last):
            longest[document, read.start] = max(longest.get((document, read.start), 0), read.length)
    return sum(longest.values())


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


@torch.no_grad()
def read_answers(
    model: LanguageModel,
    logits: Float[Tensor, "B S"],
    state: RecurrentState,
    answers: Sequence[np.ndarray],
    *,
    known: int | None = None,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Reads a given continuation of each row (teacher-forced) from the state after its prompt.

    Shorter answers are read with padding behind them, which nothing before it sees; the state is thrown away. The
    losses are of the model's own softmax over all of its logits, as in ``losses``; what is likeliest is what greedy
    writing would choose, which never writes an id that only pads the vocabulary.

    Args:
        model: reads.
        logits: of what follows each row's prompt.
        state: after each row's prompt.
        answers: token ids, at least one a row.
        known: only ids below this are ever the likeliest; None: the model's vocabulary.

    Returns:
        For each row the likeliest token at every position of its answer, and the answer's losses in nats.
    """
    padded = torch.zeros(len(answers), max(map(len, answers)), dtype=torch.int64)
    for row, answer in enumerate(answers):
        padded[row, : len(answer)] = torch.from_numpy(answer.astype(np.int64))
    padded = padded.to(model.device)
    likeliest, losses, position = [], [], 0
    rest = (output.logits for output in stream(model, padded[:, :-1], state)) if padded.shape[1] > 1 else ()
    for piece in chain([logits.unsqueeze(1)], rest):
        targets = padded[:, position : position + piece.shape[1]]
        nats = token_losses(piece.flatten(0, 1), targets.flatten())
        likeliest.append(piece[..., : known_ids(model, known)].argmax(dim=2))
        losses.append(nats.view_as(targets))
        position += piece.shape[1]
    tokens, nats = torch.cat(likeliest, dim=1).cpu().numpy(), torch.cat(losses, dim=1).cpu().numpy()
    ends = list(enumerate(map(len, answers)))
    return [tokens[row, :end] for row, end in ends], [nats[row, :end] for row, end in ends]


def stream(
    model: LanguageModel, tokens: Int[Tensor, "B L"], state: RecurrentState | None = None
) -> Iterator[LanguageModelOutput]:
    """Reads rows piece by piece, the state carried from each to the next; yields each piece's output."""
    piece = min(LONGEST_PIECE, max(1, _tokens_at_once(model) // tokens.shape[0]))
    for start in range(0, tokens.shape[1], piece):
        output = model(tokens[:, start : start + piece], state)
        state = output.state
        yield output


@dataclass(frozen=True)
class Moment:
    """Where a sweep stands after so many tokens of the documents.

    Attributes:
        position: the documents' tokens before this point.
        reads: which of the reads are in the batch, in the order of its rows.
        logits: of each, for the next token, x[position].
        state: of each.
    """

    position: int
    reads: tuple[int, ...]
    logits: Float[Tensor, "N S"]
    state: RecurrentState


def sweep(
    model: LanguageModel,
    documents: Sequence[np.ndarray],
    reads: Sequence[tuple[int, Read]],
    positions: Iterable[int],
    *,
    advance: Callable[[int], None] | None = None,
) -> Iterator[Moment]:
    """Executes reads side by side in one pass over the documents' positions.

    A read joins the batch, from the zero state, as the sweep reaches its start, and leaves it at its stop; so what the
    reads at a position have in common is the time, and every moment holds them all beside each other.

    Args:
        model: reads.
        documents: token arrays.
        reads: (document, read); what a read scores is left to the caller.
        positions: where to stop and look; those that no read has reached or covers are passed over.
        advance: told the tokens read, for progress.
    """
    wanted = set(positions)
    marks = sorted({*wanted, *(read.start for _, read in reads), *(read.stop for _, read in reads)})
    active: list[int] = []
    state: RecurrentState | None = None
    for start, stop in pairwise(marks):
        stay = [row for row, index in enumerate(active) if reads[index][1].stop > start]
        join = [index for index, (_, read) in enumerate(reads) if read.start == start]
        state = _regrouped(model, state, len(active), stay, len(join))
        active = [active[row] for row in stay] + join
        if state is None:
            continue
        logits = None
        piece = min(LONGEST_PIECE, max(1, _tokens_at_once(model) // len(active)))
        for begin in range(start, stop, piece):
            tokens = np.stack([documents[reads[index][0]][begin : min(begin + piece, stop)] for index in active])
            with torch.no_grad():  # here, and not around the generator, whose caller runs in between
                output = model.advance(torch.from_numpy(tokens.astype(np.int64)).to(model.device), state)
                state, logits = output.state, output.logits[:, -1]
            if advance:
                advance(tokens.size)
        if stop in wanted and logits is not None and state is not None:
            yield Moment(stop, tuple(active), logits, state)


def _regrouped(
    model: LanguageModel, state: RecurrentState | None, rows: int, stay: list[int], joining: int
) -> RecurrentState | None:
    """The state of a batch that some of its rows leave, and that others join from zero; None: no row is left."""
    parts = []
    if state is not None and stay:
        parts.append(state if len(stay) == rows else state.rows(torch.tensor(stay, device=model.device)))
    if joining:
        parts.append(model.zero_state(joining))
    return concatenate(parts) if len(parts) > 1 else next(iter(parts), None)


def _rows(documents: Sequence[np.ndarray], policy: Policy, spans: Sequence[tuple[int, int, int]]) -> Iterator[_Row]:
    shared: dict[tuple[int, int, int | None], list[tuple[int, int, Read]]] = {}
    for span, (document, first, last) in enumerate(spans):
        for read in policy.reads(first, last):
            shared.setdefault((document, read.start, read.recentre_every), []).append((span, first, read))
    for (document, start, every), of_row in shared.items():
        stop = max(read.stop for _, _, read in of_row)
        yield _Row(documents[document][start : stop + 1], start, stop, every, of_row)


def _tokens_at_once(model: LanguageModel) -> int:
    return max(1, min(TOKENS_AT_ONCE, LOGITS_AT_ONCE // model.config.padded_vocab_size))


def _batches(rows: list[_Row], at_once: int) -> Iterator[list[_Row]]:
    start = 0
    while start < len(rows):
        count = max(1, at_once // min(rows[start].stop - rows[start].start, LONGEST_PIECE // 2))
        yield rows[start : start + count]
        start += count


class _Recentring:
    """Reads the calibration rows beside a batch and takes the drift of their mean away, from theirs too."""

    def __init__(self, model: LanguageModel, rows: Sequence[np.ndarray], every: int, length: int):
        if not rows or min(len(row) for row in rows) < length:
            found = f"{len(rows)} rows, the shortest of {min(map(len, rows))} tokens" if rows else "none"
            raise EverlongError(f"recentring needs calibration rows of {length:,} tokens or more; given: {found}")
        self.model, self.rows, self.every = model, rows, every
        self.state: RecurrentState | None = None
        self.reference: RecurrentState | None = None
        self.read = 0

    def corrected(self, state: RecurrentState, position: int) -> RecurrentState:
        """The batch's state after ``position`` tokens; the calibration is read on to there."""
        if position % self.every:
            return state
        tokens = np.stack([row[self.read : position] for row in self.rows]).astype(np.int64)
        for output in stream(self.model, torch.from_numpy(tokens).to(self.model.device), self.state):
            self.state = output.state
        self.read = position
        assert self.state is not None
        mean = self.state.map(lambda leaf: leaf.mean(0, keepdim=True))
        if self.reference is None:
            self.reference = mean
            return state
        roles = [leaf.role for leaf in state.spec.leaves]
        pairs = zip(roles, mean.leaves, self.reference.leaves, strict=True)
        drift = [now - then if role == "recurrent" else None for role, now, then in pairs]
        self.state = _without(self.state, drift)
        return _without(state, drift)


def _without(state: RecurrentState, drift: list[Tensor | None]) -> RecurrentState:
    pairs = zip(state.leaves, drift, strict=True)
    return RecurrentState(state.spec, tuple(leaf if gone is None else leaf - gone for leaf, gone in pairs))


def _row_losses(
    model: LanguageModel,
    rows: list[_Row],
    calibration: Sequence[np.ndarray],
    advance: Callable[[int], None] | None,
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Reads rows (longest first) side by side; yields (row, start of the piece, losses of its targets).

    A row that has ended reads padding to the end of the piece, which nothing before it sees, then leaves the batch.
    """
    lengths = [len(row.tokens) - 1 for row in rows]
    every = rows[0].recentre_every
    recentring = _Recentring(model, calibration, every, lengths[0]) if every else None
    state, start, active = None, 0, len(rows)
    at_once = _tokens_at_once(model)
    while active:
        piece = min(LONGEST_PIECE, max(1, at_once // active), lengths[0] - start)
        piece = min(piece, every - start % every) if every else piece
        padded = np.zeros((active, piece + 1), dtype=np.int64)
        for index in range(active):
            part = rows[index].tokens[start : start + piece + 1]
            padded[index, : len(part)] = part
        tokens = torch.from_numpy(padded).to(model.device)
        output = model(tokens[:, :-1], state)
        targets = tokens[:, 1:]
        nats = token_losses(output.logits.flatten(0, 1), targets.flatten()).float()
        nats = nats.view(targets.shape).cpu().numpy()
        for row in range(active):
            yield row, start, nats[row, : lengths[row] - start]
        if advance:
            advance(sum(min(piece, lengths[row] - start) for row in range(active)))
        start += piece
        still = sum(length > start for length in lengths)
        state = recentring.corrected(output.state, start) if recentring and still else output.state
        state = state if still == active else state.rows(slice(still))
        active = still
