"""Works are timed in turns, first calls are kept out, and the figure is the median of the turns' ratios."""

import pytest

from benchmarks import measure
from benchmarks.measure import Spread, compare, in_turns, measurement


def test_the_figure_is_the_median_of_ratios_taken_within_each_turn():
    seconds = {"theirs": (2.0, 20.0, 4.0), "ours": (1.0, 10.0, 1.0)}  # the machine was slow in the second turn
    found = measurement(seconds, over="theirs", under="ours")
    assert found.figure.values == (2.0, 2.0, 4.0)
    assert (found.figure.median, found.figure.low, found.figure.high) == (2.0, 2.0, 4.0)
    assert found.of_fastest == 2.0


def test_works_take_turns_in_changing_order_and_first_calls_are_kept_out():
    calls = []

    def work(name, seconds):
        def call():
            calls.append(name)
            return 1000.0 if calls.count(name) == 1 else seconds  # the first call compiles

        return call

    found = in_turns({"a": work("a", 1.0), "b": work("b", 2.0)}, repeats=3)
    assert calls == ["a", "a", "b", "b", *"ab", *"ba", *"ab"]
    assert found == {"a": (1.0, 1.0, 1.0), "b": (2.0, 2.0, 2.0)}


def test_short_work_is_done_several_times_a_sample(monkeypatch):
    monkeypatch.setattr(measure, "SHORTEST", 1.0)
    calls = []

    def short():
        calls.append(1)
        return 0.25

    assert in_turns({"short": short}, repeats=2)["short"] == (0.25, 0.25)
    assert len(calls) == 2 + 2 * 4


def test_what_another_process_timed_stands_above_our_own_clock():
    found = compare({"a": lambda: 6.0, "b": lambda: 2.0}, 5, over="a", under="b")
    assert found.figure == Spread(values=(3.0,) * 5)


def test_work_without_its_own_seconds_is_timed_by_the_clock():
    assert all(0 < seconds < 0.1 for seconds in in_turns({"nothing": lambda: None}, 2)["nothing"])


@pytest.mark.parametrize("values", [(), (1.0, float("nan")), (float("inf"),)])
def test_no_figure_is_made_of_nothing_or_of_what_is_not_finite(values):
    with pytest.raises(ValueError, match="no figure"):
        Spread(values=values)
