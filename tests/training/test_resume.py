"""10 steps at once equal 5, an end of any kind, and 5 more: weights, carried states, metrics and record, to the bit."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from everlong.errors import EverlongError, RunStopped
from everlong.interventions.methods import INTERVENTIONS
from everlong.training import checkpoint as checkpoint_module
from tests.training import killed
from tests.training.arms import CONFIG, PHASE, Arm, Tokens, assert_same_to_the_bit, without_clock

METHODS = ("zero", "state_passing")


@pytest.mark.parametrize("crash", [5, 8])
@pytest.mark.parametrize("method", INTERVENTIONS)
def test_ten_steps_equal_five_a_crash_and_five_more(tmp_path, method, crash):
    whole = Arm(tmp_path / "whole", method)
    record = whole.train()
    Arm(tmp_path / "parts", method).crash_before(crash)
    again = Arm(tmp_path / "parts", method, model_seed=99)
    resumed = again.train()
    assert_same_to_the_bit(again, whole)
    assert without_clock(resumed) == without_clock(record)


@pytest.mark.parametrize(("crash", "first"), [(1, 0), (4, 3), (7, 3), (11, 8)])
@pytest.mark.parametrize("method", ["state_passing", "tbtt"])
def test_rows_that_were_read_ahead_are_not_read_again_at_a_resume(tmp_path, method, crash, first):
    """Batches 0 to 2 are read ahead and saved before the first step; the next checkpoint is after step 5, batch 7."""
    whole = Arm(tmp_path / "whole", method, prefill_steps=3)
    record = whole.train()
    Arm(tmp_path / "parts", method, prefill_steps=3).crash_before(crash)
    again, read = Arm(tmp_path / "parts", method, model_seed=99 if first else 0, prefill_steps=3), []
    resumed = again.train(again.tokens(read.append))
    assert_same_to_the_bit(again, whole)
    assert without_clock(resumed) == without_clock(record)
    assert read == list(range(first, 13))


@pytest.mark.parametrize("method", METHODS)
def test_ten_steps_equal_a_kill_and_the_rest(tmp_path, method):
    """The child is killed in the middle of step 7, so two steps that were logged are done again."""
    whole = Arm(tmp_path / "whole", method)
    record = whole.train()
    marker = tmp_path / "at-step-7"
    child = subprocess.Popen(
        [sys.executable, "-m", killed.__name__, str(tmp_path / "parts"), method, str(marker)],
        cwd=Path(__file__).parents[2],
    )
    try:
        deadline = time.monotonic() + 120
        while not marker.exists() and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        assert marker.exists(), "the child did not come to step 7"
    finally:
        child.kill()
        assert child.wait() == -signal.SIGKILL
    again = Arm(tmp_path / "parts", method, model_seed=99)
    assert [line["step"] for line in again.lines()] == list(range(7))
    assert again.checkpoints() == ["step-000005"]
    resumed = again.train()
    assert_same_to_the_bit(again, whole)
    assert without_clock(resumed) == without_clock(record)


def test_a_torn_checkpoint_costs_steps_and_changes_nothing(tmp_path):
    config = replace(CONFIG, checkpoint_every=3)
    whole = Arm(tmp_path / "whole")
    whole.train(config=config)
    parts = Arm(tmp_path / "parts")
    parts.crash_before(8, config)
    newest = tmp_path / "parts" / "checkpoints" / PHASE / "step-000006"
    (newest / "optimizer.safetensors").write_bytes(b"torn")
    again = Arm(tmp_path / "parts", model_seed=99)
    again.train(config=config)
    assert "step-000006 is torn and passed over: optimizer.safetensors has changed" in again.said
    assert_same_to_the_bit(again, whole)


def test_a_run_without_any_checkpoint_begins_anew(tmp_path):
    whole = Arm(tmp_path / "whole")
    whole.train()
    Arm(tmp_path / "parts").crash_before(3)
    again = Arm(tmp_path / "parts")
    again.train()
    assert_same_to_the_bit(again, whole)


def test_a_finished_phase_gives_its_record_again_without_a_step(tmp_path):
    arm = Arm(tmp_path / "run")
    record = arm.train()

    def forbid(step: int) -> None:
        raise AssertionError(f"step {step} is done again")

    again = Arm(tmp_path / "run", model_seed=99)
    resumed = again.train(Tokens(forbid))
    assert without_clock(resumed) == without_clock(record)
    logged = json.loads((arm.folder / "metrics.jsonl").read_text().splitlines()[-1])["seconds"]
    assert resumed.seconds >= logged - 0.001  # rounded
    assert_same_to_the_bit(again, arm)


def test_phases_of_a_run_do_not_touch_each_other(tmp_path):
    arm = Arm(tmp_path / "run")
    arm.folder.mkdir()
    (arm.folder / "config.json").write_text(json.dumps({"verb": "repair", "config": {}}))
    (arm.folder / "metrics.jsonl").write_text('{"phase": "other", "step": 9}\n')
    arm.train()
    assert arm.lines()[0] == {"phase": "other", "step": 9}
    assert len(arm.lines()) == 11


def test_other_settings_are_refused_before_anything_changes(tmp_path):
    arm = Arm(tmp_path / "run")
    arm.crash_before(7)
    lines = arm.lines()
    with pytest.raises(EverlongError, match=r"other settings \(learning_rate 0\.02, was 0\.01\)"):
        arm.train(config=replace(CONFIG, learning_rate=2e-2))
    with pytest.raises(EverlongError, match=r"other settings \(intervention .*0\.5.*, was .*0\.1"):
        Arm(tmp_path / "run", reset_probability=0.5).train()
    assert arm.lines() == lines


def test_another_model_is_refused_by_the_first_difference(tmp_path):
    Arm(tmp_path / "run").crash_before(7)
    other = Arm(tmp_path / "run")
    other.model.backbone.norm_f.weight = torch.nn.Parameter(torch.ones(8))
    with pytest.raises(EverlongError, match=r"backbone\.norm_f\.weight is \[16\] there, \[8\] in this model"):
        other.train()


def test_a_full_disk_stops_the_run_which_goes_on_when_there_is_space(tmp_path, monkeypatch):
    whole = Arm(tmp_path / "whole")
    whole.train()

    def full(tensors: dict, path: Path, **metadata: Any) -> None:
        if "step-000010" in str(path):
            raise OSError(28, "No space left on device")
        write(tensors, path, **metadata)

    write = checkpoint_module.save_file
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint_module, "save_file", full)
        with pytest.raises(RunStopped, match="step-000005"):
            Arm(tmp_path / "parts").train()
    again = Arm(tmp_path / "parts", model_seed=99)
    again.train()
    assert_same_to_the_bit(again, whole)
