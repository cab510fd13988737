"""Burn-in: where the prefixes begin."""

import math

import torch

from everlong.interventions.methods import create

ROWS = torch.arange(64)


def prefixes(method, step: int) -> torch.Tensor:
    """How long each row's own prefix is."""
    resets = method.resets(step, ROWS, method.row_length(16))
    assert (resets.sum(1) == 1).all()
    return method.unscored_prefix - resets.int().argmax(1)


def test_prefixes_are_of_every_length_alike_and_end_where_the_loss_begins():
    method = create("burn_in", seed=0, longest_prefix=9)
    lengths = torch.cat([prefixes(method, step) for step in range(100)])
    counts = torch.bincount(lengths)
    assert len(counts) == 10
    expected = len(lengths) / 10
    assert (counts - expected).abs().max() < 4 * math.sqrt(expected)


def test_the_row_holds_the_context_beside_the_longest_prefix():
    method = create("burn_in", seed=0, longest_prefix=9)
    assert (method.row_length(16), method.unscored_prefix, method.row_count(8)) == (25, 9, 8)
    assert not method.prefix_gradient
    assert create("burn_in", seed=0, gradient=True).prefix_gradient


def test_a_prefix_is_a_function_of_seed_step_and_row():
    method = create("burn_in", seed=0)
    whole, some = method.resets(3, ROWS, 300), method.resets(3, ROWS[[40, 2]], 300)
    assert torch.equal(whole[[40, 2]], some)
    assert not torch.equal(whole, method.resets(4, ROWS, 300))
    assert not torch.equal(whole, create("burn_in", seed=1).resets(3, ROWS, 300))
