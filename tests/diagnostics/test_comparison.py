"""What the table of a repair says of each range, against the model's own windows and the control's."""

from dataclasses import replace

import numpy as np
import pytest

from everlong.diagnostics.comparison import HARMS, NO_BETTER, PAYS, UNDECIDED, compare, headroom
from everlong.errors import EverlongError
from tests.reports.synthetic import make_diagnosis

NOISE = np.random.default_rng(0).normal(0, 0.002, (32, 9))


def diagnosis(label, *, carry, window, longer):
    """Losses as given in every bucket, with a little noise a document; ``longer`` is that of all windows but T."""
    base = make_diagnosis(label)
    losses = {"carry": np.full((32, 9), carry) + NOISE}
    for width in base.window_widths:
        losses[f"window:{width}"] = np.full((32, 9), window if width == base.context else longer) + NOISE[::-1]
    return replace(base, losses=losses)


@pytest.fixture
def control():
    return diagnosis("zero", carry=1.5, window=1.0, longer=0.9)


@pytest.mark.parametrize(
    ("carry", "window", "longer", "meaning"),
    [
        (1.1, 1.0, 1.0, HARMS),
        (1.0, 1.0, 0.99, NO_BETTER),
        (0.95, 1.0, 0.96, NO_BETTER),  # below its own windows, but not below the control's best
        (0.85, 1.0, 0.88, PAYS),
        (0.85, 1.0, 0.80, NO_BETTER),  # below the control's best window, but not below its own best
    ],
)
def test_each_range_is_called_what_it_is(control, carry, window, longer, meaning):
    row = compare(diagnosis("state_passing", carry=carry, window=window, longer=longer), control)
    assert set(row.meaning) == {meaning}


def test_an_interval_across_the_tolerance_is_undecided(control):
    repaired = diagnosis("state_passing", carry=1.02, window=1.0, longer=1.0)
    assert set(compare(repaired, control).meaning) == {UNDECIDED}


def test_a_repair_that_spoils_its_own_window_does_not_pay(control):
    """Its own windows are an easy opponent; the control's are not."""
    spoiled = diagnosis("state_passing", carry=1.45, window=1.5, longer=1.5)
    row = compare(spoiled, control)
    assert max(row.own.upper) < 0 < min(row.control.lower)
    assert PAYS not in row.meaning


def test_headroom_is_what_the_best_longer_window_gains(control):
    np.testing.assert_allclose(headroom(control), 0.1, atol=1e-9)


def test_models_that_read_other_targets_are_not_compared(control):
    other = replace(control, documents=tuple(reversed(control.documents)))
    with pytest.raises(EverlongError, match="did not read the same targets"):
        compare(other, control)


def test_a_range_weighs_its_positions_equally(control):
    """1,024-4,096 holds twice as many positions above 2,048 as below."""
    carry = np.ones((32, 9))
    starts = make_diagnosis().bucket_starts
    carry[:, starts.index(2048)] = 4.0
    row = compare(replace(control, losses={**control.losses, "carry": carry}), control)
    column = row.own.starts.index(1024)
    np.testing.assert_allclose(row.own.mean[column], 2.0, atol=0.01)
