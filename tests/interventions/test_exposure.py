import math

import numpy as np
import pytest
import torch

from everlong.errors import EverlongError
from everlong.interventions.exposure import ExposureCounter, age_grid, expected_exposure, token_ages
from everlong.interventions.methods import create
from tests.interventions.states import LENGTH, SPEC, final_state

STEPS = 12
RATES = tuple(0.1 + 0.9 * math.sin(math.pi * (step + 0.5) / STEPS) for step in range(STEPS))


def counted(seed: int, probability: float, batch_size: int) -> ExposureCounter:
    """The exposure of a run of state passing, counted by what really happens."""
    method = create("state_passing", seed=seed, reset_probability=probability, passed_roles=("recurrent",))
    counter = ExposureCounter(context=LENGTH, steps=STEPS)
    rows, starts = torch.arange(batch_size), torch.zeros(batch_size, dtype=torch.bool)
    final = final_state(0, rows)
    for step in range(STEPS):
        method.initial_state(starts, SPEC, step, rows)
        met = token_ages(method.ages(rows).numpy(), LENGTH)
        method.observe(final, torch.from_numpy(met[:, -1] + 1))
        counter.add(counter.count(met).tolist(), RATES[step])
    return counter


def expectation(probability: float, batch_size: int, ages: tuple[int, ...]) -> tuple[float, ...]:
    return expected_exposure(
        context=LENGTH, batch_size=batch_size, learning_rates=RATES, reset_probability=probability, ages=ages
    )


@pytest.mark.parametrize("probability", [0.1, 0.4])
def test_the_expectation_is_the_mean_over_seeds_of_what_is_counted(probability):
    runs = np.array([counted(seed, probability, 16).record().tokens for seed in range(60)])
    expected = expectation(probability, 16, age_grid(context=LENGTH, steps=STEPS))
    error = runs.std(axis=0, ddof=1) / math.sqrt(len(runs))
    assert np.all(np.abs(runs.mean(axis=0) - expected) <= 4 * error + 1e-9)
    assert np.all(runs.std(axis=0)[1:] > 0)  # the draws do matter


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_without_chance_the_expectation_is_the_count(probability):
    record = counted(0, probability, 4).record()
    np.testing.assert_allclose(record.tokens, expectation(probability, 4, record.ages), rtol=1e-12)


def test_between_multiples_of_the_context_the_expectation_is_the_sum_over_chains():
    p, ages = 0.3, (0, 1, 7, 15, 16, 17, 40, 100, LENGTH * STEPS - 1, LENGTH * STEPS)
    expected = []
    for age in ages:
        total = 0.0
        for step in range(STEPS):
            for passed in range(step + 1):
                chance = (1 - p) ** passed * (p if passed < step else 1)
                total += RATES[step] * chance * sum(passed * LENGTH + i >= age for i in range(LENGTH))
        expected.append(4 * total)
    np.testing.assert_allclose(expectation(p, 4, ages), expected, rtol=1e-12)
    assert expected[-2] > 0
    assert expected[-1] == 0


def test_the_zero_control_never_meets_a_state_older_than_the_context():
    tokens = expectation(1.0, 8, (0, LENGTH - 1, LENGTH))
    assert tokens == pytest.approx((8 * LENGTH * sum(RATES), 8 * sum(RATES), 0.0))


@pytest.mark.parametrize(("steps", "last"), [(1, 0), (2, 16), (3, 32), (4, 32), (5, 64), (100, 1024)])
def test_the_grid_ends_at_the_largest_power_that_can_be_met(steps, last):
    grid = age_grid(context=16, steps=steps)
    assert grid[0] == 0
    assert grid[-1] == last
    assert last <= 16 * steps - 1 < max(2 * last, 16)


def test_a_reset_inside_a_row_makes_the_state_new():
    resets = np.array([[False, False, True, False], [True, False, False, True], [False] * 4])
    ages = token_ages(np.array([10, 20, 30]), 4, resets)
    assert ages.tolist() == [[10, 11, 0, 1], [0, 1, 2, 0], [30, 31, 32, 33]]


def test_only_scored_tokens_count():
    counter = ExposureCounter(context=4, steps=8)
    ages = token_ages(np.array([0, 8]), 4)
    scored = np.array([[False, True, True, True], [True, False, False, True]])
    assert counter.count(ages, scored).tolist() == [5, 2, 2, 0]
    counter.add(counter.count(ages, scored).tolist(), 0.5)
    record = counter.record()
    assert record.scored_tokens == 5
    assert record.ages == (0, 4, 8, 16)
    assert record.tokens == (2.5, 1.0, 1.0, 0.0)


def test_a_count_goes_on_after_a_resume_to_the_bit():
    whole, first, second = (ExposureCounter(context=4, steps=8) for _ in range(3))
    for step in range(8):
        counts = whole.count(token_ages(np.array([4 * step, 0]), 4)).tolist()
        whole.add(counts, 0.1 * (step + 1))
        (first if step < 3 else second).add(counts, 0.1 * (step + 1))
        if step == 2:
            second.load_state_dict(first.state_dict())
    assert second.record() == whole.record()


def test_a_probability_out_of_range_is_refused():
    with pytest.raises(EverlongError, match=r"reset_probability is -0\.1; it must lie between 0 and 1"):
        expectation(-0.1, 4, (0,))
