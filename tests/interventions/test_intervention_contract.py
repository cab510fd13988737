"""What every intervention in the registry must hold to."""

import json
from dataclasses import fields

import pytest
import torch
from torch import Tensor

from everlong.interventions._draws import uniform
from everlong.interventions.config import InterventionConfig
from everlong.interventions.methods import CONFIGS, INTERVENTIONS, create
from tests.interventions.states import LENGTH, SPEC, final_state, same, side_by_side, walk

ROWS = torch.arange(4)
STARTS = torch.zeros(4, dtype=torch.bool)
FITTED = ("fitted_noise", "correlated_noise")  # sums over rows, in another order

pytestmark = pytest.mark.parametrize("method", INTERVENTIONS)


def test_the_registry_names_it_and_its_settings(method):
    assert INTERVENTIONS[method].name == method
    assert issubclass(CONFIGS[method], InterventionConfig)
    assert list(CONFIGS) == list(INTERVENTIONS)


def test_it_declares_the_data_order_it_needs(method):
    assert INTERVENTIONS[method].data_order in ("any", "shuffled", "contiguous")


def test_its_settings_can_stand_in_a_record(method):
    settings = create(method, seed=3).settings()
    assert settings["method"] == method
    assert settings["seed"] == 3
    assert json.loads(json.dumps(settings))["method"] == method


def test_its_rows_are_at_least_as_long_as_the_context_with_a_scored_token(method):
    intervention = create(method, seed=0)
    assert intervention.row_length(32) >= 32
    assert 0 <= intervention.unscored_prefix < intervention.row_length(32)


def test_the_first_step_starts_from_zero_or_from_noise_in_recurrent_leaves_alone(method):
    intervention = create(method, seed=0)
    state = intervention.initial_state(STARTS, SPEC, 0, ROWS)
    for leaf, tensor in state.items():
        assert bool(tensor.any()) == (method == "random_noise" and leaf.role == "recurrent")
    assert intervention.ages(ROWS).tolist() == [0, 0, 0, 0]


def test_initial_states_fit_the_model_and_have_no_graph(method):
    for state, ages in walk(create(method, seed=0), range(5), ROWS):
        state.check(SPEC, 4)
        for leaf, tensor in state.items():
            assert tensor.dtype == leaf.dtype
            assert not tensor.requires_grad
        assert ages.shape == (4,)
        assert ages.dtype == torch.int64


def test_observe_detaches(method):
    intervention = create(method, seed=0)
    intervention.initial_state(STARTS, SPEC, 0, ROWS)
    graph = final_state(0, ROWS).map(lambda leaf: leaf.requires_grad_() * 2)
    intervention.observe(graph, torch.full((4,), LENGTH))
    state = intervention.initial_state(STARTS, SPEC, 1, ROWS)
    assert not any(tensor.requires_grad for tensor in state.leaves)
    assert not any(value.requires_grad for value in intervention.state_dict().values() if isinstance(value, Tensor))


def test_observed_states_are_not_changed(method):
    intervention = create(method, seed=0)
    for step in range(6):
        intervention.initial_state(STARTS, SPEC, step, ROWS)
        observed = final_state(step, ROWS)
        intervention.observe(observed, torch.full((4,), LENGTH))
        intervention.initial_state(STARTS, SPEC, step + 1, ROWS)
        assert same(observed, final_state(step, ROWS))


def test_a_resume_goes_on_with_the_same_draws_states_and_ages(method):
    whole = walk(create(method, seed=5), range(12), ROWS)
    first = create(method, seed=5)
    walk(first, range(6), ROWS)
    kept = first.state_dict()
    assert all(isinstance(value, Tensor | int | float | str) for value in kept.values())
    second = create(method, seed=5)
    second.load_state_dict({name: v.clone() if isinstance(v, Tensor) else v for name, v in kept.items()})
    for (ours, our_ages), (theirs, their_ages) in zip(walk(second, range(6, 12), ROWS), whole[6:], strict=True):
        assert same(ours, theirs)
        assert torch.equal(our_ages, their_ages)


@pytest.mark.parametrize("parts", [[[0, 1], [2, 3]], [[0, 2], [1, 3]], [[3], [0, 1, 2]]])
def test_rows_do_not_depend_on_the_processes_that_they_are_spread_over(method, parts):
    together = walk(create(method, seed=1), range(10), ROWS)
    alone = side_by_side([create(method, seed=1) for _ in parts], range(10), [torch.tensor(part) for part in parts])
    for part, met in zip(parts, alone, strict=True):
        for (ours, our_ages), (state, ages) in zip(met, together, strict=True):
            for a, b in zip(ours.leaves, state.rows(torch.tensor(part)).leaves, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-6 if method in FITTED else 0, atol=0)
            assert torch.equal(our_ages, ages[torch.tensor(part)])


@pytest.mark.parametrize("now", [[0, 1, 2, 3], [2, 3]])
def test_another_number_of_processes_goes_on_where_two_were(method, now):
    two = [create(method, seed=1) for _ in range(2)]
    side_by_side(two, range(6), [torch.tensor([0, 1]), torch.tensor([2, 3])])
    one, rows = create(method, seed=1), torch.tensor(now)
    carried = one.regrouped([each.state_dict() for each in two], rows)
    assert carried is not None
    one.load_state_dict(carried)
    state = one.initial_state(STARTS[rows], SPEC, 6, rows)
    wanted, ages = walk(create(method, seed=1), range(7), ROWS)[6]
    for ours, theirs in zip(state.leaves, wanted.rows(rows).leaves, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6 if method == "fitted_noise" else 0, atol=0)
    assert torch.equal(one.ages(rows), ages[rows])


def test_a_step_can_be_taken_back(method):
    kept = create(method, seed=5)
    walk(kept, range(5), ROWS)
    before = kept.state_dict()
    as_it_was = {name: v.clone() if isinstance(v, Tensor) else v for name, v in before.items()}
    walk(kept, range(5, 7), ROWS)
    assert all(torch.equal(torch.as_tensor(before[name]), torch.as_tensor(v)) for name, v in as_it_was.items())
    kept.load_state_dict(before)
    never = create(method, seed=5)
    walk(never, range(5), ROWS)
    assert same(kept.initial_state(STARTS, SPEC, 7, ROWS), never.initial_state(STARTS, SPEC, 7, ROWS))


def test_rows_that_start_from_zero_by_chance_are_the_same_under_every_method(method):
    if "reset_probability" not in {field.name for field in fields(CONFIGS[method])}:
        pytest.skip("starts every row from zero")
    rows = torch.arange(64)
    intervention = create(method, seed=3, reset_probability=0.3)
    expected = [uniform(3, step, rows) < 0.3 for step in range(4)]
    for (state, ages), zeroed, step in zip(walk(intervention, range(4), rows), expected, range(4), strict=True):
        resets = intervention.resets(step, rows, intervention.row_length(8))
        assert not ages[zeroed].any()
        assert not any(tensor[zeroed].any() for tensor in state.leaves)
        if resets is not None:
            assert resets[zeroed, intervention.unscored_prefix].all()
        elif step:
            assert all(row.any() for row in state.leaves[0][~zeroed])


def test_asking_twice_gives_the_same_state(method):
    intervention = create(method, seed=2)
    walk(intervention, range(4), ROWS)
    states = [intervention.initial_state(STARTS, SPEC, 4, ROWS) for _ in range(2)]
    assert same(*states)


def test_global_generators_are_left_alone(method):
    before = torch.get_rng_state()
    walk(create(method, seed=0), range(4), ROWS)
    assert torch.equal(before, torch.get_rng_state())
