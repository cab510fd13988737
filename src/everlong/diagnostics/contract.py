"""Whether a model keeps the contract where it is now: random tokens read in several ways must give the same.

An error is the largest difference, over the largest magnitude of what should have come out, in units of the model
dtype's epsilon: the logits' over all positions, each leaf of the final state over itself. What the dtype rounds away is
a few of them; a state that is passed on wrong is thousands.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

from everlong.models.language_model import LanguageModel, LanguageModelOutput
from everlong.ops.backends import Recurrence
from everlong.records.doctor import Check
from everlong.state import RecurrentState

LENGTH = 131  # odd, and over the border of two chunks of 64
ROWS = 2
SPLITS: tuple[tuple[int, ...], ...] = ((1,) * 17 + (114,), (64, 67), (65, 1, 65), (1, 2, 3, 63, 62), (130, 1))
DOCUMENTS = (1, 2, 5, 70, 1, 52)
BOUNDS = {torch.float16: 32.0, torch.bfloat16: 16.0}
BOUND = 1000.0
"""In epsilons: 1e-4 of the logits' scale in float32; in half precisions the rounding of a deep model is coarser."""
UNIT = "eps"
CHECKS = 5
"""How many there are, for progress."""


@dataclass(frozen=True)
class Error:
    """How far two readings of the same tokens differ.

    Attributes:
        value: the largest error of logits and final state, in epsilons.
        where: what differs most, in words.
        position: tokens read when the logits' error first exceeds the bound, or None; the state's is at the end.
    """

    value: float
    where: str
    position: int | None


def bound_of(dtype: torch.dtype) -> float:
    """The largest error in epsilons that counts as rounding."""
    return BOUNDS.get(dtype, BOUND)


def random_tokens(model: LanguageModel, *, seed: int, rows: int = ROWS, length: int = LENGTH) -> Int[Tensor, "B T"]:
    """Token ids of the model's vocabulary, drawn uniformly."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.vocab_size, (rows, length), generator=generator).to(model.device)


def check_contract(model: LanguageModel, *, seed: int) -> Iterator[Check]:
    """Runs all checks, one after the other; the model is left as it was."""
    tokens = random_tokens(model, seed=seed)
    with torch.no_grad():
        whole = model(tokens)
    finite = bool(torch.isfinite(whole.logits).all())
    yield Check(name="logits are finite", ok=finite, words=f"over {tokens.shape[1]} random tokens, {len(tokens)} rows")
    yield _splits(model, tokens, whole)
    yield _resets(model, tokens)
    yield _reference(model, tokens, whole)
    yield _modes(model, tokens, whole)


def read(
    model: LanguageModel,
    pieces: Sequence[Tensor],
    resets: Sequence[Tensor] | None = None,
) -> LanguageModelOutput:
    """Reads pieces [B, any T] one after the other with the carried state: all logits, the state after the last."""
    logits: list[Tensor] = []
    state: RecurrentState | None = None
    for index, piece in enumerate(pieces):
        output = model(piece, state, resets=resets[index] if resets else None)
        logits.append(output.logits)
        state = output.state
    assert state is not None, "at least one piece"
    return LanguageModelOutput(torch.cat(logits, dim=1), state)


def error(model: LanguageModel, found: LanguageModelOutput, wanted: LanguageModelOutput) -> Error:
    """How far two readings differ, in logits and final state."""
    epsilon = torch.finfo(model.dtype).eps
    logits = relative(found.logits, wanted.logits).amax(dim=(0, 2)) / epsilon  # by position
    worst = Error(float(logits.max()), "logits", _first_above(logits, bound_of(model.dtype)))
    for (leaf, ours), theirs in zip(found.state.items(), wanted.state.leaves, strict=True):
        value = float(relative(ours, theirs).max() / epsilon)
        if value > worst.value:
            worst = Error(value, f"final state {leaf.path}", worst.position)
    return worst


@contextmanager
def computed_by(model: LanguageModel, backend: str) -> Iterator[None]:
    """The model with another backend in all of its recurrences."""
    switched = [(module, module.backend) for module in recurrences(model)]
    try:
        for module, _ in switched:
            module.backend = backend
        yield
    finally:
        for module, before in switched:
            module.backend = before


def recurrences(model: LanguageModel) -> list[Recurrence]:
    """The submodules through which the mixers call their op."""
    return [module for module in model.modules() if isinstance(module, Recurrence)]


@torch.no_grad()
def _splits(model: LanguageModel, tokens: Tensor, whole: LanguageModelOutput) -> Check:
    """The worst of all splits, the first position that any shows, and what dropping the state would have changed."""
    found = {split: error(model, read(model, tokens.split(split, dim=1)), whole) for split in SPLITS}
    worst = max(found, key=lambda split: found[split].value)
    shown = {split: each.position for split, each in found.items() if each.position is not None}
    first = min(shown, key=lambda split: shown[split]) if shown else None
    if first is not None:
        told = f"split as {_pieces(first)}"
    else:
        told = f"{len(SPLITS)} splits, single steps among them; worst: {_pieces(worst)}"
    at = SPLITS[1][0]
    cut = LanguageModelOutput(whole.logits[:, at:], whole.state)
    dropped = error(model, model(tokens[:, at:]), cut).value
    told += f"; dropping the state instead: {dropped:.1g} {UNIT}"
    if dropped <= bound_of(model.dtype):
        told += ", so these tokens cannot tell whether it is carried"
    return _check(
        "any split gives the whole", model, replace(found[worst], position=min(shown.values(), default=None)), told
    )


@torch.no_grad()
def _resets(model: LanguageModel, tokens: Tensor) -> Check:
    """Documents packed into one row, against each read alone."""
    starts = torch.tensor(DOCUMENTS).cumsum(0)[:-1]
    resets = torch.zeros_like(tokens, dtype=torch.bool)
    resets[:, starts] = True
    alone = [model(document) for document in tokens.split(DOCUMENTS, dim=1)]
    wanted = LanguageModelOutput(torch.cat([output.logits for output in alone], dim=1), alone[-1].state)
    sizes = SPLITS[1]
    packed = read(model, tokens.split(sizes, dim=1), resets.split(sizes, dim=1))
    told = f"documents of {_pieces(DOCUMENTS)} tokens"
    return _check("packed documents equal each alone", model, error(model, packed, wanted), told)


@torch.no_grad()
def _reference(model: LanguageModel, tokens: Tensor, whole: LanguageModelOutput) -> Check:
    chosen = model.backend_in_use()
    with computed_by(model, "reference"):
        wanted = model(tokens)
    told = f"backend {chosen}, same input" if chosen != "reference" else "it is the backend itself"
    return _check("backend equals the reference loop", model, error(model, whole, wanted), told)


@torch.no_grad()
def _modes(model: LanguageModel, tokens: Tensor, whole: LanguageModelOutput) -> Check:
    before = model.training
    try:
        found = model.train(not before)(tokens)
    finally:
        model.train(before)
    return _check("train mode equals eval mode", model, error(model, found, whole), "of one read")


def _check(name: str, model: LanguageModel, found: Error, told: str) -> Check:
    bound = bound_of(model.dtype)
    ok = found.value <= bound
    place = "" if ok else f"{found.where} differs most"
    if not ok and found.position is not None:
        place += f", the logits first after {found.position:,} tokens"
    return Check(
        name=name,
        ok=ok,
        words=f"{place}; {told}" if place else told,
        value=found.value,
        bound=bound,
        unit=UNIT,
        position=None if ok else found.position,
    )


def relative(found: Tensor, wanted: Tensor) -> Tensor:
    """Differences over the largest magnitude of what is wanted; infinite where a number is not finite."""
    wide = torch.promote_types(wanted.dtype, torch.float32)
    found, wanted = found.to(wide), wanted.to(wide)
    scale = torch.nan_to_num(wanted.abs(), nan=0.0, posinf=0.0).max().clamp(min=torch.finfo(wide).tiny)
    return torch.nan_to_num((found - wanted).abs() / scale, nan=math.inf, posinf=math.inf)


def _first_above(errors: Tensor, bound: float) -> int | None:
    above = (errors > bound).nonzero()
    return int(above[0, 0]) + 1 if len(above) else None


def _pieces(sizes: Sequence[int]) -> str:
    """1 x 17 + 114, 64 + 67."""
    runs: list[list[int]] = []
    for size in sizes:
        if runs and runs[-1][0] == size:
            runs[-1][1] += 1
        else:
            runs.append([size, 1])
    return " + ".join(f"{size}" if count == 1 else f"{count} x {size}" for size, count in runs)
