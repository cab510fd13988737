"""The contract of the state, for every architecture: what it is, what it refuses, and that nothing lies beside it."""

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree

from everlong.errors import EverlongError
from everlong.state import RecurrentState, StateSpec

from .readings import ARCHITECTURE_NAMES, settings
from .tiny import TINY, asymmetric_state, tiny_model, tokens_for, with_gradients

pytestmark = pytest.mark.parametrize("architecture", ARCHITECTURE_NAMES)


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
