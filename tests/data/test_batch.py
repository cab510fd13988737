"""A batch counts what is scored and moves as a whole."""

from dataclasses import replace

import torch

from everlong.data.batch import Batch

BATCH = Batch(
    tokens=torch.zeros(2, 3, dtype=torch.int64),
    targets=torch.ones(2, 3, dtype=torch.int64),
    starts=torch.tensor([True, False]),
    rows=torch.arange(2),
)


def test_without_a_mask_every_target_is_scored():
    assert BATCH.scored_tokens == 6


def test_with_a_mask_only_its_targets_are_scored():
    mask = torch.tensor([[False, True, True], [False, False, True]])
    assert replace(BATCH, loss_mask=mask).scored_tokens == 3


def test_everything_moves_to_the_device_and_what_is_absent_stays_absent():
    moved = replace(BATCH, resets=torch.zeros(2, 3, dtype=torch.bool)).to("meta")
    assert moved.resets is not None
    assert {tensor.device.type for tensor in (moved.tokens, moved.targets, moved.starts, moved.resets, moved.rows)} == {
        "meta"
    }
    assert moved.loss_mask is None
