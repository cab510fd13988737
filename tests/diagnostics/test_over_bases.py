"""Bases are the replicates: what is averaged first, what the intervals are over, and what counts as repaired."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from everlong.diagnostics.over_bases import over_bases
from everlong.errors import EverlongError
from everlong.records.files import load_record, save_record
from everlong.records.repair import Repair
from tests.reports.synthetic import make_repair

LABELS = ("before", "zero", "state_passing")


def repair(excess: dict[str, tuple[float, float]], harms: bool = True) -> Repair:
    """A repair whose models have these excesses in two ranges; whether those above 0.02 surely harm."""
    made = make_repair(LABELS)
    rows = []
    for row in made.rows:
        mean = excess[row.label]
        own = replace(row.own, mean=mean, lower=mean, upper=mean, starts=(64, 256), stops=(256, 1024))
        meaning = tuple("reading on harms" if value > 0.02 and harms else "undecided" for value in mean)
        rows.append(replace(row, own=own, meaning=meaning))
    return replace(made, rows=tuple(rows))


def experiment(excesses: list[list[dict]], **changes):
    repairs = [[repair(excess, **changes) for excess in of_base] for of_base in excesses]
    seeds = range(len(excesses[0]))
    bases = [f"base {place}" for place in range(len(excesses))]
    return over_bases(repairs, bases=bases, seeds=list(seeds), runs=["a"], seconds={"a": 1.0})


EXCESSES = [
    [{"before": (0.5, 2.0), "zero": (0.5, 2.2), "state_passing": (0.01, s)} for s in (0.1, 0.2)],
    [{"before": (0.0, 1.0), "zero": (0.0, 1.0), "state_passing": (0.00, s)} for s in (0.2, 0.4)],
    [{"before": (0.6, 3.0), "zero": (0.6, 2.9), "state_passing": (0.05, s)} for s in (0.3, 0.3)],
]


def test_seeds_are_averaged_within_a_base_and_intervals_are_over_bases():
    record = experiment(EXCESSES)
    arm = record.arms[2]
    assert arm.excess.shape == (3, 2, 2)
    of_bases = np.array([0.15, 0.3, 0.3])
    error = of_bases.std(ddof=1) / np.sqrt(3)
    reach = stats.t.ppf(1 - 0.025 / 2, 2) * error  # two ranges
    assert arm.over_bases.mean[1] == pytest.approx(0.25)
    assert arm.over_bases.lower[1] == pytest.approx(0.25 - reach)
    assert arm.over_bases.upper[1] == pytest.approx(0.25 + reach)
    assert "over bases" in record.interval


def test_arms_are_paired_within_a_base():
    record = experiment(EXCESSES)
    difference = np.array([0.15 - 2.2, 0.3 - 1.0, 0.3 - 2.9])
    assert record.arms[2].over_control.mean[1] == pytest.approx(difference.mean())
    width = record.arms[2].over_control.upper[1] - difference.mean()
    assert width == pytest.approx(stats.t.ppf(1 - 0.025 / 2, 2) * difference.std(ddof=1) / np.sqrt(3))
    (contrast,) = record.contrasts
    assert (contrast.first, contrast.second) == ("zero", "state_passing")
    assert contrast.difference.mean[1] == pytest.approx(-difference.mean())


def test_only_harmed_bases_count_as_repaired():
    record = experiment(EXCESSES)
    assert record.harmed == (2, 3)
    arm = record.arms[2]
    assert arm.taken_away[0] == pytest.approx((0.98 + 1 - 0.05 / 0.6) / 2)
    assert arm.repaired == (2, 2)  # in the second range, base 1 keeps 30 % of its excess
    assert arm.freed == (1, 0)
    assert record.arms[1].repaired == (0, 0)


def test_the_sentence_names_the_farthest_range_and_the_best_arm_first():
    sentence = experiment(EXCESSES).sentence
    assert sentence.startswith("At 256-1,024 tokens, over 3 bases (2 seeds each), the excess was +2.000 nats before")
    assert sentence.index("state_passing +0.250") < sentence.index("zero +2.033")
    assert "2 of 3 repaired" in sentence


def test_where_no_base_is_harmed_nothing_is_repaired():
    record = experiment(EXCESSES, harms=False)
    assert "nothing to repair" in record.sentence
    assert record.harmed == record.arms[2].repaired == (0, 0)
    assert np.isnan(record.arms[2].taken_away).all()


def test_one_base_has_means_and_no_intervals():
    arm = experiment(EXCESSES[:1]).arms[2]
    assert arm.over_bases.mean[1] == pytest.approx(0.15)
    assert np.isnan(arm.over_bases.lower).all()


def test_repairs_of_other_arms_are_refused():
    other = replace(repair(EXCESSES[0][0]), rows=repair(EXCESSES[0][0]).rows[:2])
    with pytest.raises(EverlongError, match="not the same arms and ranges"):
        over_bases(
            [[repair(EXCESSES[0][0])], [other]], bases=["a", "b"], seeds=[0], runs=["a", "b"], seconds={"a": 0.0}
        )


def test_the_record_survives_a_round_trip(tmp_path):
    record = experiment(EXCESSES)
    save_record(record, tmp_path / "experiment.json")
    again = load_record(tmp_path / "experiment.json")
    assert again.contrasts == record.contrasts
    for ours, theirs in zip(again.arms, record.arms, strict=True):
        assert ours.over_bases == theirs.over_bases
        np.testing.assert_array_equal(ours.excess, theirs.excess)
        np.testing.assert_array_equal(ours.harms, theirs.harms)
