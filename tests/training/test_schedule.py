from itertools import pairwise

import pytest

from everlong.errors import EverlongError
from everlong.training.config import TrainingConfig
from everlong.training.schedule import learning_rate, relative_learning_rates

CONFIG = TrainingConfig(steps=100, learning_rate=1e-3, learning_rate_floor=1e-5, warm_up=0.1)


def test_it_climbs_in_equal_strides_to_the_peak_and_falls_to_just_above_the_floor():
    rates = [learning_rate(step, CONFIG) for step in range(100)]
    strides = [after - before for before, after in pairwise(rates[:11])]
    assert strides == pytest.approx([1e-3 / 11] * 10)
    assert rates[10] == max(rates) == 1e-3
    assert all(before > after for before, after in pairwise(rates[10:]))
    assert 1e-5 < rates[-1] < 1.1e-5


def test_halfway_through_the_cosine_it_is_halfway_between_peak_and_floor():
    assert learning_rate(55, CONFIG) == pytest.approx((1e-3 + 1e-5) / 2)


@pytest.mark.parametrize("warm_up", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_every_step_of_any_run_has_a_rate_above_zero_and_not_above_the_peak(warm_up, steps):
    config = TrainingConfig(steps=steps, learning_rate=1e-3, warm_up=warm_up)
    assert all(0 < learning_rate(step, config) <= 1e-3 for step in range(steps))


def test_relative_rates_are_over_the_peak():
    relative = relative_learning_rates(CONFIG)
    assert len(relative) == 100
    assert relative[10] == 1.0
    assert relative[40] == learning_rate(40, CONFIG) / 1e-3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, "steps is 0; it must be at least 1"),
        ({"batch_size": -2}, "batch_size is -2; it must be at least 1"),
        ({"checkpoint_every": 0}, "checkpoint_every is 0; it must be at least 1"),
        ({"learning_rate": 0.0}, r"learning_rate is 0\.0; it must be above 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; it must be above 0"),
        ({"clip": 0.0}, r"clip is 0\.0; it must be above 0"),
        (
            {"learning_rate_floor": 1.0},
            r"learning_rate_floor is 1\.0; it must lie between 0 and learning_rate, 0\.0003",
        ),
        ({"warm_up": 1.5}, r"warm_up is 1\.5; it must lie between 0 and 1"),
        ({"weight_decay": -0.1}, r"weight_decay is -0\.1; it must be at least 0"),
        ({"betas": (0.9, 1.0)}, "each must be at least 0 and below 1"),
    ],
)
def test_a_setting_out_of_range_is_named_with_what_is_allowed(settings, message):
    with pytest.raises(EverlongError, match=message):
        TrainingConfig(**settings)
