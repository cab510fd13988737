"""Where the excess passes the tolerance is where it was planted, and does not move with the number of documents."""

import pytest
import torch

from everlong.crossing import crossing
from tests.diagnostics.planted import PlantedModel
from tests.diagnostics.test_diagnose import CONTEXT, LENGTH, break_after, run


def rising(rate):
    """An excess that grows by ``rate`` nats an octave beyond 64 tokens."""
    return PlantedModel(lambda read: 1.0 + rate * torch.log2(read.clamp(min=64) / 64))


@pytest.mark.parametrize(("rate", "at"), [(0.01, 256), (0.02, 128)])
def test_a_slow_rise_passes_the_tolerance_where_it_was_planted(rate, at):
    found = crossing(run(rising(rate)))
    assert found.position == pytest.approx(at, rel=0.25)
    assert found.lower
    assert found.position
    assert found.upper
    assert found.lower <= found.position <= found.upper


def test_fewer_documents_move_the_verdict_and_not_the_crossing():
    many, few = run(rising(0.02)), run(rising(0.02), lengths=(2000,) * 5)
    assert many.verdict.outcome == "breaks"
    assert few.verdict.outcome == "undecided"
    assert crossing(few).position == pytest.approx(crossing(many).position, rel=0.1)


def test_a_step_passes_between_the_middles_of_the_buckets_around_it():
    found = crossing(break_after(256)).position
    assert found
    assert 181 <= found <= 362


def test_what_never_harms_is_passed_nowhere():
    found = crossing(run(PlantedModel(lambda read: torch.ones_like(read)), max_length=LENGTH // 2))
    assert (found.position, found.lower, found.upper) == (None, None, None)
    assert str(found) == "none [none, none]"


def test_what_harms_from_the_training_length_on_is_passed_beyond_it():
    found = crossing(break_after(CONTEXT)).position
    assert found
    assert CONTEXT <= found <= 2 * CONTEXT
