import numpy as np
import pytest
from scipy import stats

from everlong.errors import EverlongError
from everlong.tasks._intervals import interval, wilson
from everlong.tasks.config import BABILongConfig, PasskeyConfig, RecallConfig, parse_length


@pytest.mark.parametrize(("successes", "count"), [(0.0, 10), (3.0, 10), (10.0, 10), (97.0, 100)])
def test_wilson_agrees_with_scipy(successes, count):
    theirs = stats.binomtest(int(successes), count).proportion_ci(0.95, method="wilson")
    assert wilson(successes, count, 0.95) == pytest.approx((theirs.low, theirs.high))


@pytest.mark.parametrize("text", ["99999999999999999999", "2000m", "1" * 5000, str((1 << 30) + 1)])
def test_lengths_beyond_what_can_be_held_are_refused(text):
    with pytest.raises(EverlongError, match="out of range; give at most 1024m"):
        parse_length(text)
    assert parse_length("1024m") == 1 << 30


@pytest.mark.parametrize(
    ("config", "name"), [(PasskeyConfig, "depths"), (RecallConfig, "facts"), (BABILongConfig, "questions")]
)
def test_an_empty_grid_is_refused(config, name):
    with pytest.raises(EverlongError, match=f"--{name} is empty"):
        config(**{name: ()})


def test_zeros_and_ones_get_wilson_and_shares_student():
    assert interval(np.array([1.0, 0.0, 1.0]), 0.9) == wilson(2.0, 3, 0.9)
    values = np.array([0.2, 0.5, 0.9, 0.4])
    theirs = stats.t.interval(0.9, 3, loc=values.mean(), scale=stats.sem(values))
    assert interval(values, 0.9) == pytest.approx(theirs)


@pytest.mark.parametrize(("text", "length"), [("300", 300), ("2k", 2048), ("0k", 0), ("1M", 1 << 20)])
def test_lengths_are_read_as_people_write_them(text, length):
    assert parse_length(text) == length
