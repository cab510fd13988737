"""The engine on every architecture: a resume and recomputed blocks are the whole run to the bit."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from everlong.models.architectures import ARCHITECTURES
from tests.models.tiny import tiny_model
from tests.training.arms import CONFIG, Arm, assert_same_to_the_bit, checkpoint_of, without_clock

SHORT = replace(CONFIG, steps=4, checkpoint_every=2)
TOLERANCE = 1e-9  # of a weight after 4 steps of 1e-2, in float64: sums are taken in another order


def arm(folder: Path, architecture: str, *, dtype: torch.dtype = torch.float32, other_weights: bool = False) -> Arm:
    """State passing: what is carried is the architecture's own state, every leaf of it."""
    model = tiny_model(architecture, dtype=dtype)
    if other_weights:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.fill_(0.5)
    return Arm(folder, model=model)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_two_steps_a_crash_and_two_more_are_four_to_the_bit(tmp_path, architecture):
    whole = arm(tmp_path / "whole", architecture)
    record = whole.train(config=SHORT)
    arm(tmp_path / "parts", architecture).crash_before(3, SHORT)
    again = arm(tmp_path / "parts", architecture, other_weights=True)
    assert without_clock(again.train(config=SHORT)) == without_clock(record)
    assert_same_to_the_bit(again, whole)
    start = tiny_model(architecture, dtype=torch.float32)
    trained = dict(whole.model.named_parameters())
    assert all(not torch.equal(parameter, trained[name]) for name, parameter in start.named_parameters())
    carried = [name for name in whole.intervention.state_dict() if name.startswith("leaf.")]
    assert len(carried) == len(whole.model.state_spec.leaves)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_recomputed_blocks_leave_weights_states_and_metrics_to_the_bit(tmp_path, architecture):
    plain, recomputed = (arm(tmp_path / name, architecture) for name in ("plain", "recomputed"))
    plain.train(config=SHORT)
    recomputed.train(config=replace(SHORT, activation_checkpointing=True))
    assert_same_to_the_bit(recomputed, plain)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_parts_of_a_batch_make_the_step_of_the_whole(tmp_path, architecture):
    whole, parts = (arm(tmp_path / name, architecture, dtype=torch.float64) for name in ("whole", "parts"))
    whole.train(config=SHORT)
    parts.train(config=replace(SHORT, gradient_accumulation=3))
    ours, theirs = checkpoint_of(parts.folder, 4), checkpoint_of(whole.folder, 4)
    for name in (name for name in theirs if name.startswith("model/")):
        torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=TOLERANCE, msg=name)
