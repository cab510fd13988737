"""The contract, for every architecture: a carried state changes nothing, and nothing is hidden anywhere."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree

from everlong.errors import EverlongError
from everlong.models.language_model import LanguageModel
from everlong.state import RecurrentState, StateSpec

from .tiny import TINY, asymmetric_state, names, objective, tiny_model, tokens_for, with_gradients

ARCHITECTURE_NAMES = names()
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-10}
SINGLE: dict[str, Any] = {"rtol": 2e-4, "atol": 5e-5}
SETTINGS = [
    pytest.param("chunked", torch.float64, EXACT, id="chunked-float64"),
    pytest.param("reference", torch.float64, EXACT, id="reference-float64"),
    pytest.param("chunked", torch.float32, SINGLE, id="chunked-float32"),
    pytest.param("reference", torch.float32, SINGLE, id="reference-float32"),
    pytest.param("auto", torch.float32, SINGLE, id="auto-float32"),
]
pytestmark = pytest.mark.parametrize("architecture", ARCHITECTURE_NAMES)
settings = pytest.mark.parametrize(("backend", "dtype", "close"), SETTINGS)


def read(
    model: LanguageModel, pieces: Iterable[Tensor], state: RecurrentState | None, resets: Iterable[Tensor] | None = None
) -> tuple[Tensor, RecurrentState]:
    """Reads pieces one after the other with the carried state."""
    pieces = list(pieces)
    logits = []
    for piece, reset in zip(pieces, resets or [None] * len(pieces), strict=True):
        output = model(piece, state, resets=reset)
        logits.append(output.logits)
        state = output.state
    assert state is not None
    return torch.cat(logits, dim=1), state


def everything(model: LanguageModel, pieces: Iterable[Tensor], state: RecurrentState) -> dict[str, Tensor]:
    """Logits, final state, and the gradients of an objective in both, to every parameter and the initial state."""
    state = with_gradients(state)
    model.zero_grad()
    logits, final = read(model, pieces, state)
    objective(logits, final).backward()
    found = {"logits": logits.detach()}
    found |= {f"final {leaf.path}": tensor.detach() for leaf, tensor in final.items()}
    found |= parameter_gradients(model)
    return found | {f"gradient of initial {leaf.path}": gradient(tensor) for leaf, tensor in state.items()}


def parameter_gradients(model: LanguageModel) -> dict[str, Tensor]:
    return {f"gradient of {name}": gradient(parameter) for name, parameter in model.named_parameters()}


def gradient(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad.clone()


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor], close: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        scale = max(1.0, tensor.abs().max().item())
        torch.testing.assert_close(
            found[name] / scale, tensor / scale, **close, msg=lambda m, name=name: f"{name}: {m}"
        )


@pytest.mark.parametrize("length", [7, 131])
@settings
def test_any_split_gives_the_whole(architecture, backend, dtype, close, length):
    model = tiny_model(architecture, backend=backend, dtype=dtype)
    tokens, state = tokens_for(model, 2, length), asymmetric_state(model, 2)
    whole = everything(model, [tokens], state)
    for name, tensor in whole.items():
        assert tensor.abs().max() > 0, f"{name} is zero: the test sees nothing"
    splits = range(1, length) if length < 20 else (1, 64, 101)
    for split in splits:
        assert_same(everything(model, tokens.split([split, length - split], dim=1), state), whole, close)


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


@settings
def test_packed_documents_give_what_each_gives_alone(architecture, backend, dtype, close):
    model = tiny_model(architecture, backend=backend, dtype=dtype)
    lengths = [1, 2, 5, 70, 1, 9]  # within a convolution's window, over a chunk's border, at the end
    tokens, state = tokens_for(model, 1, sum(lengths)), asymmetric_state(model, 1)
    starts = torch.tensor(lengths).cumsum(0)[:-1]
    resets = torch.zeros_like(tokens, dtype=torch.bool).index_fill(1, starts, True)

    def gradients(logits: Tensor, final: RecurrentState) -> dict[str, Tensor]:
        model.zero_grad()
        objective(logits, final).backward()
        found = {"logits": logits.detach(), **parameter_gradients(model)}
        return found | {f"final {leaf.path}": tensor.detach() for leaf, tensor in final.items()}

    documents = tokens.split(lengths, dim=1)
    outputs = [model(document, state if i == 0 else None) for i, document in enumerate(documents)]
    alone = gradients(torch.cat([output.logits for output in outputs], dim=1), outputs[-1].state)
    packed = model(tokens, state, resets=resets)
    assert_same(gradients(packed.logits, packed.state), alone, close)
    for split in (2, 8, 64, 79):
        sizes = [split, tokens.shape[1] - split]
        logits, final = read(model, tokens.split(sizes, dim=1), state, resets.split(sizes, dim=1))
        assert_same(gradients(logits, final), alone, close)


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


def test_no_state_is_the_zero_state(architecture):
    model = tiny_model(architecture)
    tokens = tokens_for(model, 2, 5)
    assert torch.equal(model(tokens).logits, model(tokens, model.zero_state(2)).logits)


def test_no_tokens_are_an_error(architecture):
    model = tiny_model(architecture)
    with pytest.raises(EverlongError, match="at least one token"):
        model(torch.zeros(2, 0, dtype=torch.long))


def test_gradients_to_the_initial_state_agree_with_finite_differences(architecture):
    model = tiny_model(architecture, n_layer=1)
    tokens, state = tokens_for(model, 1, 3), with_gradients(asymmetric_state(model, 1))

    def function(*leaves: Tensor) -> tuple[Tensor, ...]:
        output = model(tokens, RecurrentState(state.spec, leaves))
        return (output.logits, *output.state.leaves)

    assert torch.autograd.gradcheck(function, state.leaves)


@pytest.mark.parametrize(
    ("dtype", "recurrent"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_recurrent_leaves_are_wide_and_the_others_follow_the_activations(architecture, dtype, recurrent):
    model = tiny_model(architecture, dtype=dtype)
    state = model(tokens_for(model, 2, 5)).state
    assert state.spec == model.state_spec
    for leaf, tensor in state.items():
        assert leaf.role in ("recurrent", "convolution", "shift")
        assert tensor.dtype == leaf.dtype == (recurrent if leaf.role == "recurrent" else dtype)
        assert tuple(tensor.shape) == (2, *leaf.shape)


@pytest.mark.parametrize("backend", ["chunked", "reference", "auto"])
def test_bfloat16_stays_within_three_percent(architecture, backend):
    """Of the same rounded weights in float32, in root mean square over 200 tokens; seen: 1.5 % of logits and states."""
    model = tiny_model(architecture, backend=backend, dtype=torch.bfloat16)
    tokens = tokens_for(model, 2, 200)
    with torch.no_grad():
        found = model(tokens)
        wanted = model.float()(tokens)
    pairs = zip((found.logits, *found.state.leaves), (wanted.logits, *wanted.state.leaves), strict=True)
    for low, high in pairs:
        assert (low.float() - high).norm() < 0.03 * high.norm()


def test_the_state_of_another_model_is_refused_by_name(architecture):
    model = tiny_model(architecture)
    tokens = tokens_for(model, 2, 3)
    deeper = tiny_model(architecture, n_layer=TINY[architecture]["n_layer"] + 1)
    with pytest.raises(EverlongError, match=r"another model's: \d+ leaves, expected \d+"):
        model(tokens, deeper.zero_state(2))
    with pytest.raises(EverlongError, match=r"leaf layers\.0"):
        model(tokens, tiny_model(architecture, dtype=torch.float32).zero_state(2))
    with pytest.raises(EverlongError, match=f"architecture 'other', expected '{architecture}'"):
        model(tokens, StateSpec(architecture="other", leaves=model.state_spec.leaves).zeros(2))
    with pytest.raises(EverlongError, match=r"layers\.0\.\w+ has shape .* need"):
        model(tokens, model.zero_state(3))


@settings
def test_the_initial_state_is_not_written_to(architecture, backend, dtype, close):
    model = tiny_model(architecture, backend=backend, dtype=dtype)
    state = asymmetric_state(model, 2)
    before = state.map(torch.clone)
    resets = torch.zeros(2, 5, dtype=torch.bool)
    resets[:, 2] = True
    for length, reset in ((1, None), (5, None), (5, resets)):
        final = model(tokens_for(model, 2, length), state, resets=reset).state
        assert all(torch.equal(a, b) for a, b in zip(state.leaves, before.leaves, strict=True))
        pointers = {leaf.untyped_storage().data_ptr() for leaf in state.leaves}
        assert pointers.isdisjoint(leaf.untyped_storage().data_ptr() for leaf in final.leaves)


def test_the_final_state_keeps_no_longer_tensor_alive(architecture):
    model = tiny_model(architecture)
    with torch.no_grad():
        final = model(tokens_for(model, 2, 200)).state
    for leaf, tensor in final.items():
        assert tensor.untyped_storage().nbytes() == tensor.nbytes, leaf.path


def test_the_state_is_a_pytree_of_its_leaves(architecture):
    state = asymmetric_state(tiny_model(architecture), 2)
    leaves, structure = _pytree.tree_flatten(state)
    assert len(leaves) == len(state.spec.leaves)
    again = _pytree.tree_unflatten(leaves, structure)
    assert isinstance(again, RecurrentState)
    assert again.spec == state.spec
    doubled = _pytree.tree_map(lambda leaf: 2 * leaf, state)
    assert torch.equal(doubled.leaves[0], 2 * state.leaves[0])


def test_every_mixer_calls_its_recurrence_with_named_inputs(architecture):
    model = tiny_model(architecture)
    seen = []
    for index in range(model.config.n_layer):
        recurrence = model.get_submodule(f"backbone.layers.{index}.mixer.recurrence")
        assert not list(recurrence.parameters())
        recurrence.register_forward_pre_hook(lambda _, args, kwargs: seen.append((args, kwargs)), with_kwargs=True)
    model(tokens_for(model, 2, 5))
    assert len(seen) == len(model.backbone.layers)
    for args, kwargs in seen:
        assert args == ()
        assert {"q", "k", "v", "log_decay", "initial_state"} <= kwargs.keys() or (
            {"x", "dt", "A", "B", "C", "initial_state"} <= kwargs.keys()
        )


def test_nothing_is_kept_between_calls(architecture):
    model = tiny_model(architecture)
    tokens = tokens_for(model, 2, 9)
    first = model(tokens).logits
    model(tokens_for(model, 2, 7, seed=1), asymmetric_state(model, 2))
    assert torch.equal(model(tokens).logits, first)
