"""Continuing prompts: memory and time a token do not grow with what was read, and rows never see each other.

Rows of different lengths are read side by side without padding: where the shortest of them ends it leaves the batch,
and the others read on. So every row comes to the state that it has when it is read alone.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from everlong.errors import EverlongError
from everlong.models.config import SamplingConfig
from everlong.models.language_model import LanguageModel
from everlong.state import RecurrentState, concatenate

TOKENS_AT_ONCE = 8192  # of all rows together: large enough for the matrix products, small enough for the caches
LONGEST_PIECE = 512  # tokens of one row at once


@dataclass(frozen=True, eq=False)
class Generated:
    """What was written.

    Attributes:
        tokens: of each row, a stop token included.
        stopped: whether a row ended with a stop token.
        state: after each row's last token, which was read too: what comes next can be read from it.
    """

    tokens: tuple[Int[Tensor, " _"], ...]
    stopped: tuple[bool, ...]
    state: RecurrentState


@torch.no_grad()
def generate(
    model: LanguageModel,
    tokens: Int[Tensor, "B T"] | Sequence[Int[Tensor, " _"]],
    state: RecurrentState | None = None,
    max_new_tokens: int = 1,
    *,
    sampling: SamplingConfig | None = None,
    stop_tokens: Collection[int] = (),
    seed: int = 0,
) -> Generated:
    """Continues prompts.

    Args:
        model: any mode, any device; it is left as it is.
        tokens: a prompt a row, of any lengths of at least 1; see ``read_prompts``.
        state: what was read before the prompts: a row for each, or one row for all; None: nothing.
        max_new_tokens: a row ends after so many.
        sampling: how tokens are chosen; None: greedily.
        stop_tokens: a row ends after any of these.
        seed: of the draws; what row r draws depends on (seed, r) alone.

    Raises:
        EverlongError: an empty prompt, a state of other rows, a token or a number out of range, a stop token that is no
            id of the vocabulary, or logits that are not finite.
    """
    if max_new_tokens < 1:
        raise EverlongError(f"max_new_tokens is {max_new_tokens}; it must be at least 1")
    prompts = list(tokens)
    logits, state = read_prompts(model, prompts, state)
    writer = Writer(model, logits, state, sampling=sampling, stop_tokens=stop_tokens, seed=seed)
    written: list[list[int]] = [[] for _ in prompts]
    while len(writer.rows) and len(written[writer.rows[0]]) < max_new_tokens:
        for row, token in writer.step():
            written[row].append(token)
    arrays = tuple(torch.tensor(row, dtype=torch.int64, device=model.device) for row in written)
    return Generated(arrays, tuple(row not in writer.rows for row in range(len(prompts))), writer.final_state())


@torch.no_grad()
def read_prompts(
    model: LanguageModel,
    prompts: Sequence[Int[Tensor, " _"]],
    state: RecurrentState | None = None,
    *,
    advance: Callable[[int], None] | None = None,
) -> tuple[Float[Tensor, "B S"], RecurrentState]:
    """Reads prompts of any lengths; what all begin with is read once.

    Args:
        model: reads.
        prompts: token ids, at least one a row.
        state: what was read before: a row for each prompt, or one row for all; None: nothing.
        advance: told the tokens read, for progress: those of all prompts together.

    Returns:
        For each prompt the logits of what follows it, and the state after its last token.

    Raises:
        EverlongError: no prompt or an empty one, a token that the model does not know, or a state of other rows.
    """
    count, lengths = len(prompts), [len(prompt) for prompt in prompts]
    if not count or not min(lengths):
        raise EverlongError("an empty prompt: a model needs at least one token to go on from")
    if state is not None and state.batch_size not in (1, count):
        raise EverlongError(
            f"the state has {state.batch_size} rows, the prompts are {count}: give a row for each, or one row for all"
        )
    order = sorted(range(count), key=lambda row: -lengths[row])
    padded = torch.zeros(count, max(lengths), dtype=torch.int64)  # what stands behind a prompt's end is never read
    for place, row in enumerate(order):
        padded[place, : lengths[row]] = prompts[row]
    _check_known(model, padded)
    padded = padded.to(model.device)
    position = _common(padded, min(lengths) - 1) if count > 1 and (state is None or state.batch_size == 1) else 0
    if position:
        state = read_prefix(model, padded[0, :position], state)
    if advance:
        advance(position * count)
    state = model.zero_state(count) if state is None else state
    index = torch.tensor(order) if state.batch_size == count > 1 else torch.zeros(count, dtype=torch.int64)
    state = state.rows(index.to(model.device))
    logits: list[Tensor] = []
    finals: list[RecurrentState] = []
    while count:
        piece = min(LONGEST_PIECE, max(1, TOKENS_AT_ONCE // count))
        stop = min(position + piece, lengths[order[count - 1]])
        output = model.advance(padded[:count, position:stop], state)
        if advance:
            advance(count * (stop - position))
        position = stop
        still = sum(lengths[row] > position for row in order[:count])
        if still < count:
            logits.append(output.logits[still:, 0])
            finals.append(output.state.rows(slice(still, count)))
        state = output.state if still == count else output.state.rows(slice(still))
        count = still
    back = torch.tensor(order).argsort().to(model.device)
    return torch.cat(logits[::-1])[back], concatenate(finals[::-1]).rows(back)


@torch.no_grad()
def read_prefix(
    model: LanguageModel, tokens: Int[Tensor, " T"], state: RecurrentState | None = None
) -> RecurrentState | None:
    """The state, of one row, after what prompts begin with; that of no tokens is the state before them.

    Args:
        model: reads.
        tokens: what all of them begin with.
        state: what was read before, one row; None: nothing.

    Raises:
        EverlongError: a token that the model does not know.
    """
    if len(tokens):
        _check_known(model, tokens)
    tokens = tokens.to(model.device).unsqueeze(0)
    for start in range(0, tokens.shape[1], LONGEST_PIECE):
        state = model.advance(tokens[:, start : start + LONGEST_PIECE], state).state
    return state


class Writer:
    """Rows that are being continued, a token at a time.

    Args:
        model: writes.
        logits: [B, S], of what follows each row.
        state: of each row.
        sampling: how tokens are chosen; None: greedily.
        stop_tokens: a row ends after any of these.
        seed: of the draws.
        known: only ids below this are written, such as those that a tokenizer knows; None: the model's vocabulary.
        numbers: of the rows: what a row draws depends on (seed, its number) alone; None: 0, 1 ...

    Attributes:
        rows: the rows that have not ended.

    Raises:
        EverlongError: a stop token that is never written.
    """

    def __init__(
        self,
        model: LanguageModel,
        logits: Float[Tensor, "B S"],
        state: RecurrentState,
        *,
        sampling: SamplingConfig | None = None,
        stop_tokens: Collection[int] = (),
        seed: int = 0,
        known: int | None = None,
        numbers: Sequence[int] | None = None,
    ):
        self.rows = list(range(len(logits)))
        self._known = known_ids(model, known)
        check_stop_tokens(stop_tokens, self._known)
        self._model, self._logits, self._state = model, logits, state
        self._sampling, self._stop_tokens = sampling or SamplingConfig(), frozenset(stop_tokens)
        self._random = [np.random.default_rng((seed, number)) for number in (numbers or self.rows)]
        self._ended: list[tuple[list[int], RecurrentState]] = []

    @torch.no_grad()
    def step(self) -> list[tuple[int, int]]:
        """Chooses a token for every row that has not ended, and reads it: (row, token).

        Raises:
            EverlongError: the logits of a row are not finite; ``broken`` says of which.
        """
        uniforms = [self._random[row].random() for row in self.rows] if self._sampling.temperature else []
        known = self._logits[:, : self._known]  # rows of padding in the embedding are no tokens
        chosen = choose(known, self._sampling, torch.tensor(uniforms, dtype=torch.float64, device=known.device))
        output = self._model.advance(chosen.unsqueeze(1), self._state)
        self._logits, self._state = output.logits[:, 0], output.state
        written = list(zip(self.rows, chosen.tolist(), strict=True))
        self.end(row for row, token in written if token in self._stop_tokens)
        return written

    def broken(self) -> list[int]:
        """The rows that have not ended and whose logits are not finite, so that no token of theirs can be chosen."""
        sound = torch.isfinite(self._logits[:, : self._known]).all(dim=1).tolist()
        return [row for row, finite in zip(self.rows, sound, strict=True) if not finite]

    def end(self, rows: Iterable[int]) -> None:
        """Ends rows that have not ended: they are not continued any more."""
        gone = set(rows)
        if not gone:
            return
        ended = torch.tensor([row in gone for row in self.rows], device=self._model.device)
        self._ended.append(([row for row in self.rows if row in gone], self._state.rows(ended)))
        self.rows = [row for row in self.rows if row not in gone]
        self._logits, self._state = self._logits[~ended], self._state.rows(~ended)

    def final_state(self) -> RecurrentState:
        """The state of every row, those that ended included, after its last token."""
        groups = [*self._ended, (self.rows, self._state)]
        rows = [row for group, _ in groups for row in group]
        back = torch.tensor(rows).argsort().to(self._model.device)
        return concatenate([state for _, state in groups]).rows(back)


def known_ids(model: LanguageModel, known: int | None = None) -> int:
    """How many ids can be written: those of the model's vocabulary, of these at most ``known``."""
    return min(model.config.vocab_size, model.config.vocab_size if known is None else known)


def check_stop_tokens(stop_tokens: Collection[int], known: int) -> None:
    """Raises where a stop token is none of the ids that can be written, so that nothing would ever stop there."""
    for token in stop_tokens:
        if not 0 <= token < known:
            raise EverlongError(f"stop token {token} is never written; the ids are 0 to {known - 1}")


def choose(logits: Float[Tensor, "B S"], sampling: SamplingConfig, uniforms: Float[Tensor, " N"]) -> Int[Tensor, " B"]:
    """The next token of each row: the likeliest, or the one at which the distribution reaches a row's uniform number.

    Args:
        logits: of what follows.
        sampling: temperature, top k, top p.
        uniforms: a number of [0, 1) a row; not used at temperature 0.

    Raises:
        EverlongError: a logit is not finite.
    """
    if not torch.isfinite(logits).all():
        raise EverlongError(
            "the model's logits are not finite, so no token can be chosen: its weights or the state that it came to "
            "are damaged; try --dtype float32, or a shorter prompt"
        )
    if not sampling.temperature:
        return logits.argmax(dim=1)
    ordered, tokens = (logits.double() / sampling.temperature).sort(dim=1, descending=True, stable=True)
    if sampling.top_k is not None:
        ordered = ordered[:, : sampling.top_k]
    shares = ordered.softmax(dim=1)
    before = shares.cumsum(dim=1) - shares
    shares = shares.masked_fill(before >= sampling.top_p, 0)  # never the first, which has nothing before it
    reached = shares.cumsum(dim=1)
    place = (reached <= uniforms.unsqueeze(1) * reached[:, -1:]).sum(dim=1)
    last = (shares > 0).sum(dim=1) - 1
    return tokens.gather(1, torch.minimum(place, last).unsqueeze(1)).squeeze(1)


def _check_known(model: LanguageModel, tokens: Tensor) -> None:
    for token in map(int, tokens.aminmax()):
        if not 0 <= token < model.config.vocab_size:
            raise EverlongError(f"token {token} is out of range; the model knows 0 to {model.config.vocab_size - 1}")


def _common(rows: Int[Tensor, "B T"], most: int) -> int:
    """How many tokens all rows begin with, ``most`` at most."""
    differ = (rows[:, :most] != rows[:1, :most]).any(dim=0).nonzero()
    return int(differ[0]) if len(differ) else most
