import subprocess
import sys
from typing import get_args

import pytest
import torch

from everlong.errors import EverlongError
from everlong.interventions._draws import uniform
from everlong.interventions.config import ROLES, PassedRole, StatePassingConfig
from everlong.interventions.methods import create
from everlong.state import LeafSpec, Role, StateSpec
from tests.interventions.states import LENGTH, SPEC, final_state, same, walk

ROWS = torch.arange(6)
STARTS = torch.zeros(6, dtype=torch.bool)


def test_without_resets_every_row_starts_where_the_row_in_its_place_ended():
    met = walk(create("state_passing", seed=0, reset_probability=0.0), range(5), ROWS)
    for step in range(1, 5):
        state, ages = met[step]
        assert same(state, final_state(step - 1, ROWS))
        assert ages.tolist() == [step * LENGTH] * 6


def test_with_resets_at_every_step_it_is_the_zero_control():
    for state, ages in walk(create("state_passing", seed=0, reset_probability=1.0), range(5), ROWS):
        assert same(state, SPEC.zeros(6))
        assert not ages.any()


def test_a_row_is_either_passed_whole_or_zero_and_its_age_says_which():
    met = walk(create("state_passing", seed=0, reset_probability=0.4), range(12), ROWS)
    seen = {True: 0, False: 0}
    for step in range(1, 12):
        state, ages = met[step]
        for row in range(6):
            zeroed = int(ages[row]) == 0
            seen[zeroed] += 1
            one = torch.tensor([row])
            expected = SPEC.zeros(1) if zeroed else final_state(step - 1, one)
            assert same(state.rows(one), expected)
            if not zeroed:
                assert ages[row] == met[step - 1][1][row] + LENGTH
    assert all(seen.values())


@pytest.mark.parametrize("probability", [0.02, 0.1, 0.5])
def test_rows_are_zeroed_as_often_as_the_probability_says(probability):
    rows = torch.arange(64)
    zeroed = [uniform(7, step, rows) < probability for step in range(400)]
    count, draws = int(torch.stack(zeroed).sum()), 64 * 400
    deviation = (draws * probability * (1 - probability)) ** 0.5
    assert abs(count - draws * probability) < 4 * deviation


def test_draws_of_neighbouring_seeds_steps_and_rows_are_not_related():
    rows = torch.arange(512)
    a = uniform(0, 0, rows) - 0.5
    for other in (uniform(1, 0, rows), uniform(0, 1, rows), uniform(0, 0, rows + 1)):
        correlation = (a * (other - 0.5)).mean() * 12
        assert correlation.abs() < 4 / 512**0.5


def test_draws_are_the_same_in_every_version():
    expected = [0.7038626353224079, 0.55988937361867, 0.22082246830451835]
    assert uniform(3, 17, torch.tensor([0, 1, 1000])).tolist() == expected


def test_a_seed_that_philox_cannot_take_is_refused():
    with pytest.raises(EverlongError, match="seed is -1; it must be at least 0"):
        create("state_passing", seed=-1)


@pytest.mark.parametrize("passed", [("recurrent",), ("convolution", "shift"), ("shift",)])
def test_leaves_of_other_roles_start_from_zero(passed):
    method = create("state_passing", seed=0, reset_probability=0.0, passed_roles=passed)
    state, ages = walk(method, range(3), ROWS)[2]
    wanted = final_state(1, ROWS)
    for (leaf, tensor), carried in zip(state.items(), wanted.leaves, strict=True):
        assert torch.equal(tensor, carried if leaf.role in passed else torch.zeros_like(carried))
    assert ages.tolist() == [2 * LENGTH if "recurrent" in passed else 0] * 6


def test_a_zeroed_row_is_zero_whatever_it_held():
    method = create("state_passing", seed=0, reset_probability=1.0)
    method.initial_state(STARTS, SPEC, 0, ROWS)
    method.observe(final_state(0, ROWS).map(lambda leaf: leaf * float("nan")), torch.full((6,), LENGTH))
    assert same(method.initial_state(STARTS, SPEC, 1, ROWS), SPEC.zeros(6))


def test_a_batch_in_several_parts_carries_each_row_in_its_own_slot():
    method = create("state_passing", seed=0, reset_probability=0.0)
    for step in range(3):
        for part in (ROWS[:2], ROWS[2:]):
            state = method.initial_state(STARTS[: len(part)], SPEC, step, part)
            assert same(state, final_state(step - 1, part) if step else SPEC.zeros(len(part)))
            method.observe(final_state(step, part), torch.full((len(part),), LENGTH))


def test_a_row_that_was_never_seen_starts_from_zero():
    method = create("state_passing", seed=0, reset_probability=0.0)
    walk(method, range(2), ROWS[:3])
    state, ages = walk(method, range(2, 3), ROWS[2:5])[0]
    assert ages.tolist() == [2 * LENGTH, 0, 0]
    assert same(state.rows(slice(0, 1)), final_state(1, ROWS[2:3]))
    assert same(state.rows(slice(1, 3)), SPEC.zeros(2))


def test_what_is_kept_does_not_hold_on_to_a_larger_tensor():
    method = create("state_passing", seed=0, reset_probability=0.0)
    method.initial_state(STARTS, SPEC, 0, ROWS)
    wide = final_state(0, ROWS).map(lambda leaf: torch.stack([leaf] * 9, dim=1)[:, 4])
    method.observe(wide, torch.full((6,), LENGTH))
    state = method.initial_state(STARTS, SPEC, 1, ROWS)
    assert same(state, final_state(0, ROWS))
    assert all(leaf.untyped_storage().nbytes() == leaf.nbytes and leaf.is_contiguous() for leaf in state.leaves)


def test_states_of_another_model_are_refused():
    method = create("state_passing", seed=0)
    walk(method, range(2), ROWS)
    leaf = LeafSpec(layer=7, name="recurrent", role="recurrent", shape=(1,), dtype=torch.float32)
    with pytest.raises(EverlongError, match=r"another model's: they have no leaf layers\.7\.recurrent"):
        method.initial_state(STARTS, StateSpec(architecture="toy", leaves=(leaf,)), 2, ROWS)


def test_settings_out_of_range_name_the_value_and_what_is_allowed():
    with pytest.raises(EverlongError, match=r"reset_probability is 1\.5; it must lie between 0 and 1"):
        StatePassingConfig(reset_probability=1.5)
    with pytest.raises(EverlongError, match="passed_roles is empty; give one or more of recurrent, convolution, shift"):
        StatePassingConfig(passed_roles=())
    with pytest.raises(EverlongError, match="state_passing has no setting p; known: reset_probability, prefill_steps"):
        create("state_passing", seed=0, p=0.1)
    with pytest.raises(EverlongError, match="unknown method 'sp'; known: burn_in, correlated_noise, fitted_noise, "):
        create("sp", seed=0)


def test_the_roles_of_the_settings_are_those_of_the_state():
    assert get_args(PassedRole) == get_args(Role) == ROLES


def test_names_settings_and_expected_exposure_need_no_torch():
    script = (
        "import sys; from everlong.interventions.methods import CONFIGS, INTERVENTIONS; list(INTERVENTIONS); "
        "CONFIGS['state_passing'](); import everlong.interventions.exposure; sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
