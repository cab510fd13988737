"""Sweeps: who has learned, at which rate an arm is judged, and arms paired on seeds or on examples."""

import numpy as np
import pytest
from scipy import stats

from everlong.records.tasks import Score, TaskCell, TaskEvaluation
from everlong.tasks._intervals import wilson
from everlong.tasks.over_seeds import Learned, Trials, over_seeds

LEARNED = Learned(measure="accuracy", bound=0.5, lengths=(10,))


def evaluation(values):
    """Two cells, of lengths 10 and 30; ``values`` [2][examples]."""
    cells = tuple(
        TaskCell(
            task="toy",
            parameters={"length": length},
            examples=len(of_cell),
            tokens_read=0,
            scores={"accuracy": Score(mean=float(np.mean(of_cell)), lower=0.1, upper=0.9)},
            floors={"chance": 0.1},
            values={"accuracy": np.array(of_cell, dtype=float)},
            notes=(),
            seconds=0.0,
        )
        for length, of_cell in zip((10, 30), values, strict=True)
    )
    return TaskEvaluation(
        task="toy", measures=("accuracy",), length_is="tokens", settings={}, model="m", architecture="mamba2",
        parameters=1, context=10, tokenizer="bytes", cells=cells, confidence=0.95, seed=0, backend="chunked",
        device="cpu", dtype="float32", seconds=0.0,
    )  # fmt: skip


def constant(near, far, examples=1000):
    """So many alike that they leave no doubt about their mean."""
    return evaluation([[near] * examples, [far] * examples])


def swept(**trials):
    arms = {
        label: Trials(words=label, evaluations=of_arm, losses=np.zeros((len(of_arm), len(of_arm[0]))))
        for label, of_arm in trials.items()
    }
    rates, seeds = len(next(iter(trials.values()))), len(next(iter(trials.values()))[0])
    return over_seeds(
        arms,
        learned=LEARNED,
        learning_rates=[10.0**-rate for rate in range(rates)],
        seeds=range(seeds),
        state="",
        state_elements=0,
        settings={},
        seconds={},
    )


def test_an_arm_is_judged_where_most_seeds_learn_whatever_lies_beyond_the_training_length():
    beyond = [constant(0.4, 1.0), constant(0.9, 1.0), constant(0.3, 1.0)]
    most = [constant(0.6, 0.2), constant(0.7, 0.0), constant(0.4, 0.1)]
    (arm,) = swept(plain=[beyond, most]).arms
    assert (arm.chosen, arm.share[0]) == (1, pytest.approx(2 / 3))
    assert arm.learned.tolist() == [[False, True, False], [True, True, False]]
    assert arm.mean == pytest.approx([np.mean([0.6, 0.7, 0.4]), 0.1])
    half = stats.t.ppf(0.975, 2) * np.std([0.2, 0.0, 0.1], ddof=1) / np.sqrt(3)
    assert arm.upper[1] == pytest.approx(0.1 + half)
    assert arm.lower[1] == 0.0  # an accuracy is not below zero


def test_arms_are_paired_on_seeds_each_at_its_own_rate():
    plain = [[constant(0.9, 0.2), constant(0.8, 0.4), constant(0.1, 0.0)], [constant(0.0, 0.9)] * 3]
    other = [[constant(0.0, 0.9)] * 3, [constant(0.9, 0.3), constant(0.9, 0.5), constant(0.9, 0.4)]]
    all_seeds, both = swept(plain=plain, other=other).contrasts
    differences = np.array([-0.1, -0.1, -0.4])
    assert (all_seeds.over, all_seeds.seeds, both.seeds) == ("all seeds", 3, 2)
    assert all_seeds.mean[1] == pytest.approx(differences.mean())
    half = stats.t.ppf(0.975, 2) * differences.std(ddof=1) / np.sqrt(3)
    assert (all_seeds.lower[1], all_seeds.upper[1]) == pytest.approx(
        (differences.mean() - half, differences.mean() + half)
    )
    assert both.over == "the seeds that learn under both"
    assert both.mean[1] == pytest.approx(-0.1)


def test_what_nothing_trained_has_no_spread_over_seeds_but_that_of_its_examples():
    same = constant(0.2, 0.4)
    tuned = [constant(0.9, 0.5), constant(0.9, 0.7)]
    record = swept(untuned=[[same, same]], tuned=[tuned])
    assert (record.arms[0].lower[1], record.arms[0].upper[1]) == (0.1, 0.9)  # the cell's own
    assert record.arms[1].lower[1] < 0.1
    assert record.arms[0].share == (0.0, 0.0, pytest.approx(wilson(0.0, 1, 0.95)[1]))  # one model, not two
    assert record.arms[1].share == (1.0, pytest.approx(wilson(2.0, 2, 0.95)[0]), 1.0)


def test_a_single_seed_is_paired_on_examples_and_nothing_is_said_of_others():
    record = swept(
        plain=[[evaluation([[1, 1, 1, 1], [1, 0, 1, 0]])]], other=[[evaluation([[1, 1, 1, 1], [0, 0, 1, 0]])]]
    )
    (pair,) = record.contrasts
    differences = np.array([1.0, 0, 0, 0])
    half = stats.t.ppf(0.975, 3) * np.sqrt(np.var([*differences, -1, 1], ddof=1) / 6)
    assert (pair.lower[1], pair.upper[1]) == (pytest.approx(0.25 - half), 1.0)
    assert pair.lower[0] < pair.mean[0] == 0 < pair.upper[0]  # four examples alike are no certainty
    assert "nothing is said of others" in record.interval
    assert (record.arms[0].lower[1], record.arms[0].upper[1]) == (0.1, 0.9)  # the cell's own


def test_seeds_that_come_out_alike_differ_by_what_their_examples_leave_open():
    """Two seeds of 20 examples each, all right under one arm and all wrong under the other, or half of them."""
    right, half, wrong = (evaluation([[1.0] * 20, values]) for values in ([1.0] * 20, [1.0, 0.0] * 10, [0.0] * 20))
    record = swept(right=[[right, right]], half=[[half, half]], wrong=[[wrong, wrong]])
    over_half, over_wrong, _ = record.contrasts
    assert over_wrong.lower[1] > 0  # 40 of 40
    assert over_half.mean[1] == 0.5
    assert over_half.lower[1] < 0 < over_half.upper[1] == 1.0  # of two seeds, each known to +-.2, nothing is sure
    spread = np.sqrt(np.var([*[1.0] * 10, *[0.0] * 10, -1.0, 1.0], ddof=1) / 22 / 2)
    assert over_half.lower[1] == pytest.approx(0.5 - stats.t.ppf(0.975, 1) * spread)
