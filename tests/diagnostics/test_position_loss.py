"""Def. 3.2 on perplexity: p* is chosen within the training range and tested on other documents."""

import numpy as np
import pytest

from everlong.diagnostics.buckets import octaves
from everlong.diagnostics.position_loss import definition_3_2, position_curve

CONTEXT, LENGTH = 64, 1024


def judged(level, *, documents=32, noise=0.02):
    """Def. 3.2 on made-up losses: ``level`` nats at each position, on documents that differ and are noisy."""
    generator = np.random.default_rng(0)
    losses = level(np.arange(1, LENGTH + 1)) + generator.normal(0, 0.3, (documents, 1))
    losses = losses + generator.normal(0, noise, losses.shape)
    curve = position_curve("carry", losses, octaves(CONTEXT, LENGTH))
    return definition_3_2(curve, context=CONTEXT, tolerance=0.02, confidence=0.95, seed=0)


def falling(t):
    return 1.0 + 1.0 / np.sqrt(t)


def test_a_loss_that_keeps_falling_generalises():
    assert judged(falling).startswith("Generalises to 1,024 tokens")


@pytest.mark.parametrize("start", [128, 256])
def test_a_rise_is_found_where_it_begins(start):
    said = judged(lambda t: falling(np.minimum(t, CONTEXT)) + np.where(t > start, 0.3, 0.0))
    assert said.startswith(f"Exceeds p* from {start} tokens on")
    assert "at t* = 64, chosen on 16 documents, tested on 16" in said


def test_noise_as_large_as_the_tolerance_is_undecided():
    assert judged(lambda t: np.ones(len(t)), noise=2.0).startswith("Undecided")


def test_fewer_than_eight_documents_are_not_judged():
    assert judged(falling, documents=7) == "Not judged: 7 documents are as long as the length, 8 are needed."


def test_no_octave_is_so_narrow_that_it_is_best_by_chance():
    assert octaves(64, 500) == [(8, 16), (16, 32), (32, 64), (64, 128), (128, 256), (256, 500)]
    assert octaves(16, 64) == [(8, 16), (16, 32), (32, 64)]
