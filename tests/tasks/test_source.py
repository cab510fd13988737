"""Rows of a task's examples, with what a method reads before them."""

import numpy as np
import pytest
import torch

from everlong.data.tokenizers import ByteTokenizer
from everlong.errors import EverlongError
from everlong.interventions.methods import create
from everlong.tasks.config import CopyingConfig, RecallConfig
from everlong.tasks.copying import Copying
from everlong.tasks.recall import Recall
from everlong.tasks.source import TaskSource

CONTEXTS = {"passkey": 400, "copying": 16, "recall": 300, "babilong": 400}


@pytest.fixture
def rows(make, settings):
    def rows(name, prefix):
        task = make(name, ByteTokenizer(), training=True)
        return TaskSource(task, length=max(CONTEXTS[name], 202) + prefix, batch_size=3, seed=1, prefix=prefix)

    return rows


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_prefix_stands_before_the_very_same_examples_and_is_never_scored(name, rows):
    plain, read = rows(name, 0).batch(2), rows(name, 100).batch(2)
    assert torch.equal(read.tokens[:, 100:], plain.tokens)
    assert torch.equal(read.targets[:, 100:], plain.targets)
    assert plain.loss_mask is not None
    assert read.loss_mask is not None
    assert torch.equal(read.loss_mask[:, 100:], plain.loss_mask)
    assert not read.loss_mask[:, :100].any()
    assert len(np.unique(read.tokens[:, :100].numpy(), axis=0)) == 3
    assert torch.equal(read.tokens, rows(name, 100).batch(2).tokens)


def test_burn_in_reads_other_examples_and_starts_afresh_inside_the_prefix(rows):
    method = create("burn_in", seed=0, longest_prefix=50)
    batch = rows("copying", method.unscored_prefix).batch(0)
    resets = method.resets(0, batch.rows, batch.tokens.shape[1])
    assert resets.sum(1).tolist() == [1, 1, 1]
    assert (resets.int().argmax(1) <= 50).all()


@pytest.mark.parametrize(
    ("task", "length", "words"),
    [
        (lambda: Recall(RecallConfig(facts=(1, 16)), ByteTokenizer(), training=True), 64, "recall .*facts 16"),
        (lambda: LongTurn(CopyingConfig(copy_shortest=2, copy_longest=3), ByteTokenizer()), 20, "copying .*turn 1"),
    ],
)
def test_a_length_that_only_some_draws_do_not_fit_is_refused_before_any_work(task, length, words):
    made = task()
    for seed in range(12):  # whatever the first batch holds
        with pytest.raises(EverlongError, match=words):
            TaskSource(made, length=length, batch_size=1, seed=seed)


class LongTurn(Copying):
    """Every second example needs more than there is."""

    def cells(self, lengths):
        return [{"length": length, "turn": turn} for length in lengths for turn in range(2)]

    def shortest_length(self, parameters):
        return 1000 * parameters.get("turn", 0)


def test_distances_are_not_trained_on_and_need_not_fit():
    config = RecallConfig(facts=(2,), distances=(1000,))
    assert TaskSource(Recall(config, ByteTokenizer(), training=True), length=80, batch_size=2, seed=0).batch(3)
