"""Random and fitted noise: its scale, where it goes, what it is drawn from, and the moments by hand."""

import math

import numpy as np
import pytest
import torch

from everlong.errors import EverlongError
from everlong.interventions._draws import normal, uniform
from everlong.interventions._noise import standard_noise
from everlong.interventions.config import FittedNoiseConfig, RandomNoiseConfig
from everlong.interventions.methods import create
from everlong.state import LeafSpec, RecurrentState, StateSpec
from tests.interventions.states import LENGTH, SPEC, same

ROWS = torch.arange(4)
STARTS = torch.zeros(4, dtype=torch.bool)
AGES = torch.full((4,), LENGTH)
MAMBA1 = StateSpec(
    architecture="toy1",
    leaves=(LeafSpec(layer=0, name="recurrent", role="recurrent", shape=(3, 5), dtype=torch.float32),),
)


def wide(batch_rows: int = 16) -> tuple[StateSpec, torch.Tensor]:
    """A state with heads large enough for statistics."""
    leaf = LeafSpec(layer=0, name="recurrent", role="recurrent", shape=(2, 32, 64), dtype=torch.float32)
    window = LeafSpec(layer=0, name="convolution", role="convolution", shape=(3, 8), dtype=torch.float32)
    return StateSpec(architecture="wide", leaves=(leaf, window)), torch.arange(batch_rows)


def random_state(spec: StateSpec, step: int, batch_size: int = 4) -> RecurrentState:
    generator = torch.Generator().manual_seed(step)
    return spec.zeros(batch_size).map(
        lambda leaf: (step + 1 + (2 + step) * torch.randn(leaf.shape, generator=generator)).to(leaf.dtype)
    )


def test_normal_numbers_are_normal():
    drawn = normal(0, 0, torch.arange(64), 4096).flatten()
    count = len(drawn)
    assert drawn.dtype == torch.float32
    assert abs(drawn.mean()) < 4 / math.sqrt(count)
    assert abs(drawn.var() - 1) < 4 * math.sqrt(2 / count)
    assert abs((drawn**4).mean() - 3) < 4 * math.sqrt(96 / count)
    inside = (drawn.abs() < 1).double().mean()
    assert abs(inside - 0.682689) < 4 * math.sqrt(0.68 * 0.32 / count)
    assert 4 < drawn.abs().max() < 6


def test_normal_numbers_do_not_depend_on_the_rows_beside_them_and_differ_between_all_else():
    drawn = normal(3, 5, torch.arange(10), 77)
    assert torch.equal(normal(3, 5, torch.tensor([7, 2]), 77), drawn[[7, 2]])
    flat = drawn.flatten()
    for other in (normal(4, 5, torch.arange(10), 77), normal(3, 6, torch.arange(10), 77), drawn.roll(1, 0)):
        assert abs((flat * other.flatten()).mean()) < 4 / math.sqrt(len(flat))
    halves = normal(3, 5, torch.arange(64), 512)  # both numbers of a pair
    assert abs((halves[:, :256] * halves[:, 256:]).mean()) < 4 / math.sqrt(64 * 256)


def test_normal_numbers_share_no_word_with_the_uniform_ones():
    key = np.array([9, 0x6576_6572_6C6F_6E67], dtype=np.uint64)
    words = [np.random.Philox(key=key, counter=[a, 2, b, c]).random_raw(8) for a, b, c in ((0, 0, 1), (0, 0, 0))]
    assert not set(words[0]) & set(words[1])
    assert uniform(9, 2, torch.tensor([0])) == (int(words[1][0]) >> 11) * 2.0**-53


@pytest.mark.parametrize("scale", [0.1, 2.5])
def test_random_noise_has_the_stated_scale_in_every_layer_and_head(scale):
    spec, rows = wide()
    state = create("random_noise", seed=1, scale=scale).initial_state(rows >= 99, spec, 3, rows)
    for head in range(2):
        values = state.leaves[0][:, head]
        assert values.std() == pytest.approx(scale, rel=4 / math.sqrt(2 * values.numel()))
        assert abs(values.mean()) < 4 * scale / math.sqrt(values.numel())
    assert not state.leaves[1].any()


def test_random_noise_is_new_at_each_step_and_for_each_seed_and_leaf():
    first = create("random_noise", seed=1).initial_state(STARTS, SPEC, 0, ROWS)
    for seed, step in ((1, 1), (2, 0)):
        assert not torch.equal(
            create("random_noise", seed=seed).initial_state(STARTS, SPEC, step, ROWS).leaves[0], first.leaves[0]
        )
    assert not torch.equal(first.leaves[0], first.leaves[2])


@pytest.mark.parametrize("method", ["random_noise", "fitted_noise"])
def test_noise_goes_into_recurrent_leaves_only_and_is_of_age_zero(method):
    intervention = create(method, seed=0)
    for step in range(4):
        state = intervention.initial_state(STARTS, SPEC, step, ROWS)
        assert not intervention.ages(ROWS).any()
        for leaf, tensor in state.items():
            assert bool(tensor.any()) == (leaf.role == "recurrent" and (step > 0 or method == "random_noise"))
        intervention.observe(random_state(SPEC, step), AGES)


@pytest.mark.parametrize("spec", [SPEC, MAMBA1], ids=["heads", "channels"])
@pytest.mark.parametrize("b", [0.0, 0.1, 0.6])
def test_fitted_moments_follow_equations_5_and_6(spec, b):
    fitted = create("fitted_noise", seed=2, history_weight=b)
    mean, variance = {}, {}
    for step in range(4):
        state = fitted.initial_state(STARTS, spec, step, ROWS)
        noise = standard_noise(spec, 2, step, ROWS, torch.device("cpu"))
        for leaf, found, drawn in zip(spec.leaves, state.leaves, noise.leaves, strict=True):
            for head in range(leaf.shape[0] if leaf.role == "recurrent" and step else 0):
                key = (leaf.path, head)
                expected = mean[key] + math.sqrt(variance[key]) * drawn[:, head].double()
                torch.testing.assert_close(found[:, head].double(), expected, rtol=1e-5, atol=1e-5)
        final = random_state(spec, step)
        fitted.observe(final, AGES)
        for leaf, tensor in final.items():
            for head in range(leaf.shape[0] if leaf.role == "recurrent" else 0):
                values, key = tensor[:, head].double().flatten(), (leaf.path, head)
                new_mean = sum(values.tolist()) / len(values)
                new_variance = sum((value - new_mean) ** 2 for value in values.tolist()) / len(values)
                mean[key] = new_mean if step == 0 else (1 - b) * new_mean + b * mean[key]
                variance[key] = new_variance if step == 0 else (1 - b) * new_variance + b * variance[key]


def test_fitted_noise_has_the_moments_of_what_was_observed():
    spec, rows = wide()
    fitted = create("fitted_noise", seed=0)
    fitted.initial_state(rows >= 99, spec, 0, rows)
    fitted.observe(random_state(spec, 4, 16), torch.full((16,), LENGTH))
    values = fitted.initial_state(rows >= 99, spec, 1, rows).leaves[0]
    assert values.mean() == pytest.approx(5, abs=0.2)
    assert values.std() == pytest.approx(6, rel=0.02)


def test_moments_are_accurate_where_the_mean_is_far_larger_than_the_spread():
    fitted = create("fitted_noise", seed=0)
    fitted.initial_state(STARTS, MAMBA1, 0, ROWS)
    values = 1000 + 1e-2 * torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(0))
    fitted.observe(RecurrentState(MAMBA1, (values,)), AGES)
    fitted.initial_state(STARTS, MAMBA1, 1, ROWS)
    expected = values.double().transpose(0, 1).flatten(1).var(1, correction=0)
    torch.testing.assert_close(fitted.state_dict()["variance"], expected, rtol=0.02, atol=0)


def test_a_batch_in_several_parts_gives_the_moments_of_the_whole():
    whole, parts = (create("fitted_noise", seed=0) for _ in range(2))
    for step in range(3):
        final = random_state(SPEC, step)
        together = whole.initial_state(STARTS, SPEC, step, ROWS)
        whole.observe(final, AGES)
        for part in (ROWS[:1], ROWS[1:]):
            state = parts.initial_state(STARTS[part], SPEC, step, part)
            for a, b in zip(state.leaves, together.rows(part).leaves, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
            parts.observe(final.rows(part), AGES[part])


@pytest.mark.parametrize("method", ["random_noise", "fitted_noise"])
def test_the_share_of_zero_starts_is_as_set_and_the_same_in_all_arms(method):
    rows = torch.arange(64)
    arms = [create(name, seed=3, reset_probability=0.3) for name in ("random_noise", "fitted_noise")]
    arms.append(create("state_passing", seed=3, reset_probability=0.3))
    zeroed = []
    for step in range(20):
        states = [arm.initial_state(rows < 0, MAMBA1, step, rows) for arm in arms]
        empty = [~state.leaves[0].flatten(1).any(1) for state in states]
        if step:
            assert torch.equal(empty[0], empty[1])
            assert torch.equal(empty[0], empty[2])
            zeroed.append(empty[0])
        for arm in arms:
            arm.observe(random_state(MAMBA1, step, 64), torch.full((64,), LENGTH))
    count, draws = int(torch.stack(zeroed).sum()), 64 * 19
    assert abs(count - 0.3 * draws) < 4 * math.sqrt(draws * 0.3 * 0.7)


def test_fitted_moments_are_those_of_the_rows_that_noise_has_started():
    fitted = create("fitted_noise", seed=0, history_weight=0.0, reset_probability=0.5)
    fitted.initial_state(STARTS, MAMBA1, 0, ROWS)
    fitted.observe(random_state(MAMBA1, 0), AGES)
    zeroed = ~fitted.initial_state(STARTS, MAMBA1, 1, ROWS).leaves[0].flatten(1).any(1)
    assert 0 < zeroed.sum() < 4
    final = random_state(MAMBA1, 1)
    fitted.observe(final, AGES)
    fitted.initial_state(STARTS, MAMBA1, 2, ROWS)
    expected = final.leaves[0][~zeroed].double().mean((0, 2))
    torch.testing.assert_close(fitted.state_dict()["mean"], expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("method", ["correlated_noise", "fitted_noise"])
def test_rows_that_a_reset_inside_has_started_anew_do_not_count_in_the_moments(method):
    """As packed documents have them: their final states are those of zero starts."""
    length = int(AGES[0])
    packed, others = (create(method, seed=0, history_weight=0.0) for _ in range(2))
    ages = AGES.clone()
    ages[[0, 2]] -= 5
    for step in range(2):
        for arm in (packed, others):
            assert arm.resets(step, ROWS, length) is None
            arm.initial_state(STARTS, MAMBA1, step, ROWS)
        final = random_state(MAMBA1, step)
        packed.observe(final, ages)
        others.initial_state(STARTS[:2], MAMBA1, step, ROWS[[1, 3]])
        others.observe(final.rows(torch.tensor([1, 3])), AGES[[1, 3]])
    for arm in (packed, others):
        arm.initial_state(STARTS, MAMBA1, 2, ROWS)
    ours, theirs = packed.state_dict(), others.state_dict()
    assert {name for name in ours if name.endswith("mean")}
    for name in ours:
        if name.endswith(("mean", "variance")):
            torch.testing.assert_close(ours[name], theirs[name])


def test_with_zero_starts_alone_there_is_no_noise_and_the_moments_stay():
    for method in ("random_noise", "fitted_noise"):
        arm = create(method, seed=0, reset_probability=1.0)
        for step in range(3):
            assert same(arm.initial_state(STARTS, SPEC, step, ROWS), SPEC.zeros(4))
            arm.observe(random_state(SPEC, step), AGES)


def test_moments_of_another_model_are_refused():
    fitted = create("fitted_noise", seed=0)
    fitted.initial_state(STARTS, SPEC, 0, ROWS)
    fitted.observe(random_state(SPEC, 0), AGES)
    with pytest.raises(EverlongError, match="fitted moments are another model's: of 4 heads, this one has 3"):
        fitted.initial_state(STARTS, MAMBA1, 1, ROWS)


@pytest.mark.parametrize(
    ("config", "settings", "message"),
    [
        (RandomNoiseConfig, {"scale": -1.0}, r"scale is -1\.0; it must be at least 0 and finite"),
        (RandomNoiseConfig, {"reset_probability": 1.5}, r"reset_probability is 1\.5; it must lie between 0 and 1"),
        (FittedNoiseConfig, {"history_weight": 1.0}, r"history_weight is 1\.0; it must be at least 0 and below 1"),
        (FittedNoiseConfig, {"reset_probability": -0.5}, r"reset_probability is -0\.5; it must lie between 0 and 1"),
    ],
)
def test_settings_out_of_range_name_the_value_and_what_is_allowed(config, settings, message):
    with pytest.raises(EverlongError, match=message):
        config(**settings)
