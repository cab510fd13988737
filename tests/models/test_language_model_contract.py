"""The contract, for every architecture: a carried state changes nothing, and nothing is hidden anywhere."""

import itertools
from collections.abc import Iterable

import pytest
import torch
from torch import Tensor

from everlong.models.language_model import LanguageModel
from everlong.state import RecurrentState, concatenate

from .readings import (
    ARCHITECTURE_NAMES,
    EXACT,
    SINGLE,
    assert_same,
    everything,
    gradient,
    parameter_gradients,
    read,
    settings,
)
from .tiny import asymmetric_state, objective, plant_decays, tiny_model, tokens_for, with_gradients

pytestmark = pytest.mark.parametrize("architecture", ARCHITECTURE_NAMES)


def splits_of(backend: str, dtype: torch.dtype, length: int) -> Iterable[int]:
    """Every split wherever that takes seconds; what is left out here is split everywhere in tests/ops, op by op."""
    every = length < 63 or (length < 300 and backend == "auto") or (length == 65 and dtype == torch.float64)
    if every and (length < 63 or backend != "reference"):
        return range(1, length)
    chosen = (1, 64) if backend == "reference" else (1, 2, 3, 15, 16, 17, 63, 64, 65, 128, 149, 257, 298, 299)
    return [split for split in chosen if split < length]


@pytest.mark.parametrize("length", [1, 2, 3, 63, 64, 65, 300])
@settings
def test_any_split_gives_the_whole(architecture, backend, dtype, close, length):
    """With all gradients: every split of every length up to 65, some of 300, all of which the next test makes."""
    model = tiny_model(architecture, backend=backend, dtype=dtype, n_layer=2 if length < 63 else 1)
    tokens, state = tokens_for(model, 2, length), asymmetric_state(model, 2)
    whole = everything(model, [tokens], state)
    for name, tensor in whole.items():
        assert tensor.abs().max() > 0, f"{name} is zero: the test sees nothing"
    for split in splits_of(backend, dtype, length):
        assert_same(everything(model, tokens.split([split, length - split], dim=1), state), whole, close)


@pytest.mark.parametrize(("backend", "stride"), [("auto", 1), ("chunked", 7)])
def test_every_split_of_300_tokens_gives_the_whole(architecture, backend, stride):
    """Logits and final state; with gradients, or for the chunked form at more than every seventh, it takes minutes.

    In tests/ops the chunked form of every op is split at every token, with gradients.
    """
    model = tiny_model(architecture, backend=backend, dtype=torch.float32, n_layer=1)
    tokens, state = tokens_for(model, 1, 300), asymmetric_state(model, 1)

    @torch.no_grad()
    def found(*sizes: int) -> dict[str, Tensor]:
        logits, final = read(model, tokens.split(sizes, dim=1), state)
        return {"logits": logits} | {leaf.path: tensor for leaf, tensor in final.items()}

    whole = found(300)
    for split in range(1, 300, stride):
        assert_same(found(split, 300 - split), whole, SINGLE)


@pytest.mark.parametrize("length", [1, 65, 300])
@settings
def test_every_backend_is_the_float64_reference(architecture, backend, dtype, close, length):
    """Logits, final state and all gradients, with resets, of the same weights.

    The tokens are such that no norm stands over a read-out that is almost zero, which makes much of any rounding.
    """
    model = tiny_model(architecture, backend=backend, dtype=dtype)
    truth = tiny_model(architecture, backend="reference", dtype=dtype).double()
    tokens, state = tokens_for(model, 2, length, seed=3), asymmetric_state(model, 2)
    resets = torch.arange(length)[None] % 100 == torch.tensor([[40], [120]]) % 100
    wanted = everything(truth, [tokens], to_double(state, truth), [resets])
    assert_same(in_double(everything(model, [tokens], state, [resets])), wanted, close)


@settings
def test_the_weakest_and_the_strongest_decays_in_one_row(architecture, backend, dtype, close):
    """Log-decays from -60 to -1e-6 and all between, in every token of both rows; in two pieces and in one."""
    model = plant_decays(tiny_model(architecture, backend=backend, dtype=dtype))
    truth = plant_decays(tiny_model(architecture, backend="reference", dtype=dtype)).double()
    seen: list[Tensor] = []
    for index in range(model.config.n_layer):
        model.get_submodule(f"backbone.layers.{index}.mixer.recurrence").register_forward_pre_hook(
            lambda _, __, named: seen.append(log_decays(named).detach().flatten(2)), with_kwargs=True
        )
    tokens, state = tokens_for(model, 2, 130), asymmetric_state(model, 2)
    whole = in_double(everything(model, [tokens], state))
    for logs in seen:
        assert logs.amin(-1).median() < -50, "the strongest"
        assert logs.amax(-1).median() > -1e-5, "the weakest"
    assert_same(whole, everything(truth, [tokens], to_double(state, truth)), close)
    assert_same(in_double(everything(model, tokens.split([1, 63, 13, 53], dim=1), state)), whole, close)


def log_decays(named: dict[str, Tensor]) -> Tensor:
    """What a recurrence was called with, as [B, T, ...]."""
    return named["log_decay"] if "log_decay" in named else named["dt"].unsqueeze(-1) * named["A"]


def to_double(state: RecurrentState, model: LanguageModel) -> RecurrentState:
    """A state of the same model in another dtype."""
    return RecurrentState(model.state_spec, tuple(leaf.double() for leaf in state.leaves))


def in_double(found: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.double() for name, tensor in found.items()}


@settings
def test_a_horizon_over_several_chunks_equals_full_backpropagation(architecture, backend, dtype, close):
    """A loss a chunk, nothing detached between them, one backward pass: the gradients of one loss over the whole."""
    model = tiny_model(architecture, backend=backend, dtype=dtype)
    sizes = [33, 1, 64, 5, 27]
    tokens, start = tokens_for(model, 2, sum(sizes)), asymmetric_state(model, 2)
    targets = tokens_for(model, 2, sum(sizes), seed=1)

    def gradients(sizes: list[int], *, detached: bool = False) -> dict[str, Tensor]:
        state = initial = with_gradients(start)
        model.zero_grad()
        losses = []
        for piece, wanted in zip(tokens.split(sizes, dim=1), targets.split(sizes, dim=1), strict=True):
            output = model(piece, state)
            losses.append(torch.nn.functional.cross_entropy(output.logits.mT, wanted, reduction="sum"))
            state = output.state.detach() if detached else output.state
        (torch.stack(losses).sum() / tokens.numel()).backward()
        found = parameter_gradients(model)
        return found | {f"gradient of initial {leaf.path}": gradient(tensor) for leaf, tensor in initial.items()}

    whole = gradients([sum(sizes)])
    assert_same(gradients(sizes), whole, close)
    cut = gradients(sizes, detached=True)
    assert any((cut[name] - whole[name]).abs().max() > 1e-3 * whole[name].abs().max() for name in whole), "it matters"


@settings
def test_single_steps_equal_one_call(architecture, backend, dtype, close):
    model = tiny_model(architecture, backend=backend, dtype=dtype)
    tokens, state = tokens_for(model, 2, 13), asymmetric_state(model, 2)
    assert_same(everything(model, tokens.split(1, dim=1), state), everything(model, [tokens], state), close)


@settings
def test_rows_do_not_see_each_other(architecture, backend, dtype, close):
    model = tiny_model(architecture, backend=backend, dtype=dtype)
    tokens, state = tokens_for(model, 3, 9), asymmetric_state(model, 3)
    together = model(tokens, state)
    for row in range(3):
        alone = model(tokens[row : row + 1], state.rows(slice(row, row + 1)))
        torch.testing.assert_close(alone.logits[0], together.logits[row], **close)
        for leaf, other in zip(alone.state.leaves, together.state.leaves, strict=True):
            torch.testing.assert_close(leaf[0], other[row], **close)


PACKINGS: dict[str, list[list[int]]] = {
    "anywhere": [[1, 3, 8, 78, 79], [5, 64]],
    "first token": [[0], []],
    "last token": [[87], [0, 87]],
    "adjacent": [[2, 3, 4, 5, 63, 64, 65], [84, 85, 86, 87]],
    "every token": [list(range(88)), []],
}
"""Row by row, the first tokens of documents, among 88: within a convolution's window, at the ends, at a chunk's."""


@pytest.mark.parametrize("starts", PACKINGS.values(), ids=PACKINGS)
@settings
def test_packed_documents_give_what_each_gives_alone(architecture, backend, dtype, close, starts):
    """Gradients too, to the parameters and to the initial state, which no document but a row's first may reach."""
    model = tiny_model(architecture, backend=backend, dtype=dtype)
    tokens, state = tokens_for(model, 2, 88), asymmetric_state(model, 2)
    resets = torch.zeros_like(tokens, dtype=torch.bool)
    for row, firsts in enumerate(starts):
        resets[row, firsts] = True

    def alone() -> dict[str, Tensor]:
        initial = with_gradients(state)
        model.zero_grad()
        rows = [documents_of(model, tokens[[row]], initial.rows(slice(row, row + 1)), starts[row]) for row in range(2)]
        logits = torch.cat([logits for logits, _ in rows])
        final = concatenate([final for _, final in rows])
        objective(logits, final).backward()
        found = {"logits": logits.detach(), **parameter_gradients(model)}
        found |= {f"final {leaf.path}": tensor.detach() for leaf, tensor in final.items()}
        none = [torch.zeros_like(leaf) if leaf.grad is None else leaf.grad for leaf in initial.leaves]
        return found | {
            f"gradient of initial {leaf.path}": g for (leaf, _), g in zip(initial.items(), none, strict=True)
        }

    wanted = alone()
    assert_same(everything(model, [tokens], state, [resets]), wanted, close)
    sizes = [2, 6, 56, 15, 8, 1]  # at resets, and between them
    assert_same(everything(model, tokens.split(sizes, dim=1), state, resets.split(sizes, dim=1)), wanted, close)


def documents_of(
    model: LanguageModel, tokens: Tensor, state: RecurrentState, starts: list[int]
) -> tuple[Tensor, RecurrentState]:
    """The logits of one row's documents, each read alone, and the state after the last."""
    edges = sorted({0, *starts, tokens.shape[1]})
    outputs = [
        model(tokens[:, first:stop], None if first in starts else state) for first, stop in itertools.pairwise(edges)
    ]
    return torch.cat([output.logits for output in outputs], dim=1), outputs[-1].state


def test_a_carried_state_that_has_diverged_ends_with_its_document(architecture):
    """Rows that start a document read it as from zero, whatever was carried: all backends, every kind of leaf."""
    for backend in ("chunked", "reference", "auto"):
        model = tiny_model(architecture, backend=backend, dtype=torch.float32)
        tokens = tokens_for(model, 2, 70)
        resets = torch.zeros_like(tokens, dtype=torch.bool)
        resets[:, 0] = True
        found = model(tokens, model.zero_state(2).map(lambda leaf: leaf + torch.nan), resets=resets)
        wanted = model(tokens)
        torch.testing.assert_close(found.logits, wanted.logits, **SINGLE)
        for leaf, other in zip(found.state.leaves, wanted.state.leaves, strict=True):
            torch.testing.assert_close(leaf, other, **SINGLE)


def test_a_reset_at_the_first_token_drops_the_carried_state(architecture):
    model = tiny_model(architecture)
    tokens = tokens_for(model, 2, 5)
    resets = torch.zeros_like(tokens, dtype=torch.bool)
    resets[1, 0] = True
    state = asymmetric_state(model, 2)
    found = model(tokens, state, resets=resets)
    kept, dropped = model(tokens[:1], state.rows(slice(0, 1))), model(tokens[1:])
    torch.testing.assert_close(found.logits, torch.cat([kept.logits, dropped.logits]), **EXACT)
    assert not torch.allclose(kept.logits, model(tokens[:1]).logits), "the state matters"
