"""One row of the crash matrix in the test suite; the whole of it is a recipe."""

import signal

import pytest

from everlong.recipes import _crashes as crashes
from everlong.recipes._crashes import Crash

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def test_a_kill_in_the_middle_of_a_checkpoints_file_loses_nothing(tmp_path):
    whole, struck = tmp_path / "whole", tmp_path / "struck"
    assert crashes.run_processes(whole, 1, None) == [0]
    crash = Crash(moment="in the middle of a checkpoint's file", number=signal.SIGKILL, step=5, rank=0)
    assert crashes.run_processes(struck, 1, crash) == [-signal.SIGKILL]
    assert (crashes.steps_logged(struck), crashes.checkpoint_left(struck)) == (8, 4)
    assert crashes.run_processes(struck, 1, None) == [0]
    assert crashes.same(crashes.outcome(struck), crashes.outcome(whole))


def test_a_difference_in_one_weight_is_seen(tmp_path):
    assert crashes.run_processes(tmp_path / "run", 1, None) == [0]
    one, other = crashes.outcome(tmp_path / "run"), crashes.outcome(tmp_path / "run")
    assert crashes.same(one, other)
    other["model/backbone.norm_f.weight"][3] += 1e-7
    assert not crashes.same(one, other)
