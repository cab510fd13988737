"""The proposal for a reach: by exposure, keeping what was set, and promising nothing."""

import pytest

from everlong.errors import EverlongError
from everlong.workflows._proposal import SHARE, STEPS, exposure_share, propose
from everlong.workflows.config import RepairConfig


@pytest.mark.parametrize(("context", "reach"), [(64, 16384), (64, 4096), (512, 16384), (2048, 131072)])
def test_a_fifth_of_the_training_is_spent_on_states_a_quarter_of_the_reach_old(context, reach):
    config = RepairConfig(reach=reach)
    proposal = propose(config, context)
    age = round(context / proposal.reset_probability)
    assert exposure_share(config, context, proposal.steps, proposal.reset_probability, min(age, reach // 4)) >= SHARE


def test_a_farther_reach_resets_less_and_takes_no_fewer_steps():
    near, far = (propose(RepairConfig(reach=reach), 64) for reach in (1024, 65536))
    assert far.reset_probability < near.reset_probability
    assert far.steps > near.steps


def test_the_papers_probability_is_the_largest_proposed():
    assert propose(RepairConfig(reach=512), 64).reset_probability == 0.1


def test_what_is_set_is_kept():
    proposal = propose(RepairConfig(steps=7, reset_probability=0.03), 64)
    assert (proposal.steps, proposal.reset_probability) == (7, 0.03)


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_the_ends_of_the_range_have_a_proposal_too(probability):
    assert propose(RepairConfig(reset_probability=probability), 64).steps >= 100


def test_the_words_state_both_their_price_and_no_promise():
    words = propose(RepairConfig(), 64).words
    for part in ("reset probability 0.0156", "300 steps", "Price in range", "Nothing is promised"):
        assert part in words


def test_a_reach_too_far_for_any_number_of_steps_gets_the_most_and_not_the_fewest():
    near, far = (propose(RepairConfig(reach=reach), 64) for reach in (1024, 64 * 4 * 10_000))
    assert near.steps == STEPS[0]
    assert far.steps == STEPS[-1]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"steps": 0}, "--steps 0"),
        ({"reach": -5}, "--reach -5"),
        ({"batch_size": 0}, "--batch-size 0"),
        ({"reset_probability": 1.5}, "--reset-probability 1.5"),
        ({"learning_rate": 0.0}, "--learning-rate 0.0"),
    ],
)
def test_a_setting_out_of_range_is_an_error_and_not_taken_for_unset(setting, message):
    with pytest.raises(EverlongError, match=message):
        RepairConfig(**setting)
