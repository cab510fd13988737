"""The doctor's measurements: a sound model passes, and each planted fault is found, with its place."""

import pytest
import torch

from everlong.diagnostics.contract import CHECKS, check_contract, recurrences
from everlong.models.language_model import LanguageModelOutput
from everlong.state import RecurrentState
from tests.models.tiny import names, tiny_model

architectures = pytest.mark.parametrize("architecture", names())
SPLIT, PACKED = "any split gives the whole", "packed documents equal each alone"
BACKEND, MODE = "backend equals the reference loop", "train mode equals eval mode"


def model_of(architecture, **settings):
    return tiny_model(architecture, dtype=settings.pop("dtype", torch.float32), **settings).eval()


def found(model):
    return {check.name: check for check in check_contract(model, seed=0)}


def failing(model):
    return {name for name, check in found(model).items() if not check.ok}


def alter_state(model, change):
    """Every state that the model gives back is changed: change(leaf index, leaf, tokens read)."""

    def hook(module, inputs, output):
        length = inputs[0].shape[1]
        leaves = tuple(change(index, leaf, length) for index, leaf in enumerate(output.state.leaves))
        return LanguageModelOutput(output.logits, RecurrentState(output.state.spec, leaves))

    model.register_forward_hook(hook)


@architectures
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("backend", ["auto", "chunked", "reference"])
def test_a_sound_model_passes_every_check_and_is_left_as_it_was(architecture, backend, dtype):
    model = model_of(architecture, backend=backend, dtype=dtype)
    checks = found(model)
    assert len(checks) == CHECKS
    assert [check for check in checks.values() if not check.ok] == []
    assert all(check.position is None for check in checks.values())
    assert not model.training
    assert {recurrence.backend for recurrence in recurrences(model)} == {backend}


@architectures
def test_any_leaf_of_the_state_that_is_lost_is_found_at_the_first_split(architecture):
    for lost in range(len(model_of(architecture).state_spec.leaves)):
        model = model_of(architecture)
        alter_state(model, lambda index, leaf, _, lost=lost: leaf * 0 if index == lost else leaf)
        check = found(model)[SPLIT]
        assert not check.ok, model.state_spec.leaves[lost].path
        assert check.position == 2, "the second token is the first that reads a carried state"


@architectures
def test_a_state_that_is_half_a_percent_off_is_found(architecture):
    model = model_of(architecture)
    alter_state(model, lambda index, leaf, _: leaf * 1.005)
    assert SPLIT in failing(model)


@architectures
def test_a_fault_at_the_border_of_a_chunk_is_placed_there(architecture):
    model = model_of(architecture)
    alter_state(model, lambda index, leaf, length: leaf * 0 if length == 64 else leaf)
    check = found(model)[SPLIT]
    assert check.position == 65
    assert "64 + 67" in check.words


@architectures
def test_a_state_with_a_number_that_is_none_is_found(architecture):
    model = model_of(architecture)
    alter_state(model, lambda index, leaf, _: leaf.masked_fill(leaf == leaf.max(), float("nan")))
    check = found(model)[SPLIT]
    assert not check.ok
    assert check.value == float("inf")


@architectures
def test_resets_that_are_not_heeded_are_found(architecture):
    model = model_of(architecture)

    def forget(module, inputs, settings):
        return inputs, {**settings, "resets": None}

    model.register_forward_pre_hook(forget, with_kwargs=True)
    check = found(model)[PACKED]
    assert not check.ok
    assert check.position == 2, "the first document has one token"
    assert failing(model) == {PACKED}


@architectures
def test_a_backend_that_is_off_is_found(architecture):
    model = model_of(architecture)
    for recurrence in recurrences(model):
        recurrence.register_forward_hook(
            lambda module, inputs, output: (output[0] * (1.0 if module.backend == "reference" else 1.01), output[1])
        )
    assert failing(model) == {BACKEND}


@architectures
def test_a_model_that_trains_differently_is_found(architecture):
    model = model_of(architecture)
    model.register_forward_hook(
        lambda module, inputs, output: LanguageModelOutput(output.logits * (1 + 0.01 * module.training), output.state)
    )
    assert failing(model) == {MODE}


@architectures
def test_logits_that_are_not_finite_are_found(architecture):
    model = model_of(architecture)
    with torch.no_grad():
        next(iter(model.parameters())).fill_(float("inf"))
    assert "logits are finite" in failing(model)


@architectures
def test_a_model_whose_state_says_nothing_is_told(architecture):
    model = model_of(architecture)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("backbone.layers"):
                parameter.zero_()
    assert "cannot tell" in found(model)[SPLIT].words
