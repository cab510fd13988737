"""The explicit state as a value: what each method gives, and that files keep every bit and refuse strangers by name."""

import pytest
import torch
from safetensors.torch import save_file

from everlong.errors import EverlongError
from everlong.state import LeafSpec, RecurrentState, Role, StateSpec, concatenate, load_state, save_state

LAYER: tuple[tuple[Role, tuple[int, ...], torch.dtype], ...] = (
    ("recurrent", (2, 3, 4), torch.float32),
    ("convolution", (3, 5), torch.bfloat16),
    ("shift", (5,), torch.bfloat16),
)
SPEC = StateSpec(
    architecture="mamba2",
    leaves=tuple(
        LeafSpec(layer=layer, name=name, role=name, shape=shape, dtype=dtype)
        for layer in range(2)
        for name, shape, dtype in LAYER
    ),
)


def state_of(batch_size: int, *, spec: StateSpec = SPEC, offset: float = 0.0) -> RecurrentState:
    """h0[i] = i + offset, exactly, in every leaf."""
    zeros = spec.zeros(batch_size)
    return zeros.map(lambda leaf: (torch.arange(leaf.numel()).view(leaf.shape) % 97 + offset).to(leaf.dtype))


def same(a: RecurrentState, b: RecurrentState) -> bool:
    return a.spec == b.spec and all(
        x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(a.leaves, b.leaves, strict=True)
    )


def test_zeros_have_the_shapes_and_dtypes_of_the_specification():
    state = SPEC.zeros(3)
    assert state.batch_size == 3
    for leaf, tensor in state.items():
        assert tuple(tensor.shape) == (3, *leaf.shape)
        assert tensor.dtype == leaf.dtype
        assert not tensor.any()


def test_a_layer_is_its_leaves_by_name_in_a_fresh_dictionary():
    state = state_of(2)
    layer = state.layer(1)
    assert list(layer) == ["recurrent", "convolution", "shift"]
    assert layer["shift"] is state.leaves[5]
    layer.clear()
    assert state.layer(1)
    assert state.layer(7) == {}


def test_map_keeps_the_results_untouched():
    answers = [object() for _ in SPEC.leaves]
    results = iter(answers)
    mapped = state_of(2).map(lambda _: next(results))
    assert all(a is b for a, b in zip(mapped.leaves, answers, strict=True))


def test_a_state_is_immutable():
    with pytest.raises(AttributeError):
        state_of(2).leaves = ()  # pyright: ignore[reportAttributeAccessIssue]


def test_zip_pairs_the_leaves_and_refuses_another_model():
    a, b = state_of(2), state_of(2, offset=1.0)
    assert same(a.zip(b, lambda x, y: y - x), a.map(torch.ones_like))
    other = StateSpec(architecture="gla", leaves=SPEC.leaves)
    with pytest.raises(EverlongError, match="different models: mamba2, gla"):
        a.zip(other.zeros(2), torch.add)


def test_detach_cuts_the_graph_and_keeps_the_values():
    state = state_of(2).map(lambda leaf: leaf.clone().requires_grad_() * 1)
    assert all(leaf.requires_grad for leaf in state.leaves)
    assert not any(leaf.requires_grad for leaf in state.detach().leaves)
    assert same(state.detach(), state)


def test_to_moves_the_device_and_keeps_the_dtypes():
    moved = state_of(2).to("meta")
    assert all(tensor.device.type == "meta" and tensor.dtype == leaf.dtype for leaf, tensor in moved.items())


@pytest.mark.parametrize("index", [torch.tensor([2, 0, 2]), torch.tensor([True, False, True]), slice(1, 3)])
def test_rows_are_selected_in_order(index):
    state = state_of(3)
    for leaf, selected in zip(state.leaves, state.rows(index).leaves, strict=True):
        assert torch.equal(selected, leaf[index])


def test_scatter_puts_rows_back_and_is_differentiable_in_both():
    state = state_of(4).map(lambda leaf: leaf.clone().requires_grad_())
    rows = state_of(2, offset=0.5).map(lambda leaf: leaf.clone().requires_grad_())
    found = state.scatter(torch.tensor([3, 1]), rows)
    for before, new, after in zip(state.leaves, rows.leaves, found.leaves, strict=True):
        assert torch.equal(after, torch.stack([before[0], new[1], before[2], new[0]]))
        after.float().sum().backward()
        assert torch.equal(new.grad, torch.ones_like(new))
        assert torch.equal(before.grad.flatten(1)[:, 0].float(), torch.tensor([1.0, 0.0, 1.0, 0.0]))
    assert same(found.rows(torch.tensor([3, 1])), rows)


def test_reset_clears_rows_whatever_they_held_and_passes_no_gradient_there():
    state = state_of(3).map(lambda leaf: leaf.index_fill(0, torch.tensor([1]), float("nan")).requires_grad_())
    found = state.reset(torch.tensor([False, True, False]))
    for before, after in zip(state.leaves, found.leaves, strict=True):
        assert torch.equal(after[1], torch.zeros_like(after[1]))
        assert torch.equal(after[[0, 2]], before[[0, 2]])
        after.float().sum().backward()
        assert torch.equal(before.grad.float().flatten(1)[:, 0], torch.tensor([1.0, 0.0, 1.0]))


def test_concatenate_stacks_rows_and_rows_take_them_apart():
    whole = state_of(5)
    assert same(concatenate([whole.rows(slice(0, 2)), whole.rows(slice(2, 5))]), whole)


def test_check_names_the_first_thing_that_does_not_fit():
    state = state_of(2)
    state.check(SPEC, 2)
    with pytest.raises(EverlongError, match=r"leaf layers\.0\.recurrent has shape \[2, 2, 3, 4\].*\[3, 2, 3, 4\]"):
        state.check(SPEC, 3)
    with pytest.raises(EverlongError, match="6 leaves, expected 3"):
        state.check(StateSpec(architecture="mamba2", leaves=SPEC.leaves[:3]), 2)


def test_a_file_keeps_every_bit(tmp_path):
    state = state_of(2).map(lambda leaf: leaf * 1.37)
    state.leaves[0][0, 0, 0, 0] = float("-0.0")
    save_state(state, tmp_path / "state.safetensors", tokens_seen=123)
    found = load_state(tmp_path / "state.safetensors", SPEC)
    for before, after in zip(state.leaves, found.leaves, strict=True):
        assert before.dtype == after.dtype
        assert torch.equal(before.contiguous().view(torch.uint8), after.contiguous().view(torch.uint8))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (StateSpec(architecture="gla", leaves=SPEC.leaves), "architecture 'mamba2', expected 'gla'"),
        (StateSpec(architecture="mamba2", leaves=SPEC.leaves[:3]), "6 leaves, expected 3"),
        (
            StateSpec(
                architecture="mamba2",
                leaves=(
                    LeafSpec(layer=0, name="recurrent", role="recurrent", shape=(2, 4, 3), dtype=torch.float32),
                    *SPEC.leaves[1:],
                ),
            ),
            r"leaf layers\.0\.recurrent is recurrent \[2, 3, 4\].*expected layers\.0\.recurrent recurrent \[2, 4, 3\]",
        ),
    ],
    ids=["architecture", "layers", "layout"],
)
def test_a_file_of_another_model_or_layout_is_refused_by_name(tmp_path, spec, message):
    save_state(state_of(2), tmp_path / "state.safetensors")
    with pytest.raises(EverlongError, match=message):
        load_state(tmp_path / "state.safetensors", spec)


def test_a_missing_torn_or_foreign_file_is_one_line(tmp_path):
    path = tmp_path / "state.safetensors"
    with pytest.raises(EverlongError, match="no state file at"):
        load_state(path, SPEC)
    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(EverlongError, match="no state file: format None, expected 'everlong-state-1'"):
        load_state(path, SPEC)
    save_state(state_of(2), path)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(EverlongError, match="cannot be read as a state file") as error:
        load_state(path, SPEC)
    assert "\n" not in str(error.value)
