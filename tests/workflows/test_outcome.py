"""The outcome of a repair in words: what it says must be what the table says."""

from everlong.workflows._outcome import summarize
from tests.diagnostics.test_comparison import diagnosis
from tests.reports.synthetic import make_training


def outcome(before, zero, passing):
    """The record of a repair whose models have these (carry, window, longer windows) losses."""
    labels = ("before", "zero", "state_passing")
    diagnoses = {
        label: diagnosis(label, carry=carry, window=window, longer=longer)
        for label, (carry, window, longer) in zip(labels, (before, zero, passing), strict=True)
    }
    return summarize(diagnoses, {label: make_training(label) for label in labels[1:]}, "proposed")


def test_it_says_how_much_of_the_excess_each_arm_took_away():
    sentence = outcome((1.5, 1.0, 1.0), (1.6, 1.0, 1.0), (1.1, 1.0, 1.0)).sentence
    assert "the excess was +0.500 nats" in sentence
    assert "after the zero-start control it is +0.600 (nothing taken away; reading on still harms" in sentence
    assert "after state passing it is +0.100 (80% taken away; reading on still harms" in sentence


def test_a_repair_within_the_tolerance_no_longer_surely_harms():
    assert "reading on no longer surely harms" in outcome((1.5, 1, 1), (1.5, 1, 1), (1.0, 1, 1)).sentence


def test_a_repair_below_every_window_pays():
    assert "reading on pays" in outcome((1.5, 1, 0.9), (1.5, 1, 0.9), (0.8, 1, 0.9)).sentence


def test_a_model_that_was_not_harmed_has_nothing_to_repair():
    assert "nothing to repair" in outcome((1.0, 1, 1), (1.0, 1, 1), (1.0, 1, 1)).sentence


def test_no_headroom_is_a_warning_that_paying_cannot_be_tested():
    assert "cannot be tested" in " ".join(outcome((1.5, 1, 1), (1.5, 1, 1), (1.1, 1, 1)).warnings)
    assert "cannot be tested" not in " ".join(outcome((1.5, 1, 0.9), (1.5, 1, 0.9), (1.1, 1, 0.9)).warnings)


def test_every_phase_has_its_seconds():
    assert set(outcome((1.5, 1, 1), (1.5, 1, 1), (1.1, 1, 1)).seconds) == {
        "diagnosing before",
        "diagnosing zero",
        "diagnosing state_passing",
        "training zero",
        "training state_passing",
    }
