"""One budget for all methods: a step scores as many tokens whatever a method reads, and the prefix comes beside it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from everlong.data.corpus import Corpus, TokenDocument
from everlong.data.orders import DATA_ORDERS
from everlong.interventions.arms import parse_arm
from everlong.interventions.methods import INTERVENTIONS, create
from tests.training.arms import CONFIG, Arm, Tokens

CONTEXT, BATCH, STEPS = 8, 8, 3
DOCUMENTS = [np.random.default_rng(place).integers(0, 11, 200 + place) for place in range(BATCH)]
CORPUS = Corpus(tuple(TokenDocument(f"d{place}", tokens) for place, tokens in enumerate(DOCUMENTS)))
READ_BESIDE = {"burn_in,longest_prefix=6": 6, "burn_in,longest_prefix=3,gradient=on": 3}
ARMS = [
    *(method for method in INTERVENTIONS if method != "burn_in"),
    *READ_BESIDE,
    "longer_context,factor=2",
    "longer_context,factor=8",
    "tbtt,gradient_horizon_chunks=4",
    "state_passing,permuted=elements",
    "state_passing,reset_probability=1.0",
]


def test_every_method_is_here():
    assert {parse_arm(text).method for text in ARMS} == set(INTERVENTIONS)


@pytest.mark.parametrize("text", ARMS)
def test_every_arm_scores_the_same_tokens_and_names_what_it_reads_beside_them(tmp_path, text):
    asked = parse_arm(text)
    arm = Arm(tmp_path / "run", asked.method, **asked.settings)
    method = create(asked.method, seed=0, **asked.settings)
    order = "shuffled" if method.data_order == "any" else method.data_order
    rows, length = method.row_count(BATCH), method.row_length(CONTEXT)
    source = DATA_ORDERS[order](CORPUS, length=length, batch_size=rows, seed=0)
    record = arm.train(source, replace(CONFIG, steps=STEPS, batch_size=rows))
    budget = STEPS * BATCH * CONTEXT
    assert record.scored_tokens == record.exposure.scored_tokens == budget
    assert record.read_tokens == budget + STEPS * rows * READ_BESIDE.get(text, 0)
    assert [line["scored_tokens"] for line in arm.lines()] == [BATCH * CONTEXT * (step + 1) for step in range(STEPS)]


def test_a_mask_within_the_rows_counts_what_it_leaves_and_no_more_than_the_scored_part(tmp_path):
    """Packed rows and answers: a target counts where it is scored and behind the prefix."""
    mask = torch.zeros(3, 14, dtype=torch.bool)
    mask[0, 2:9], mask[2, -1] = True, True  # of the first seven, three stand behind a prefix of six
    arm = Arm(tmp_path / "run", "burn_in", longest_prefix=6)
    record = arm.train(Tokens(length=14, loss_mask=mask))
    assert record.scored_tokens == 10 * (3 + 1)
    assert record.read_tokens == 10 * 3 * 14


@pytest.mark.parametrize("method", ["state_passing", "fitted_noise", "burn_in"])
def test_rows_may_be_of_another_length_at_every_step(tmp_path, method):
    """As examples of a task are; what rows start from is as old as what the rows before really read."""

    class Growing(Tokens):
        def batch(self, step: int, rows: range | None = None):
            batch, length = super().batch(step, rows), 8 + step
            return replace(batch, tokens=batch.tokens[:, :length], targets=batch.targets[:, :length])

    settings = {"longest_prefix": 3} if method == "burn_in" else {}
    arm = Arm(tmp_path / "run", method, reset_probability=0.0, **settings)
    record = arm.train(Growing(length=17))
    read = [3 * (8 + step) for step in range(10)]
    assert record.read_tokens == sum(read)
    assert record.scored_tokens == sum(read) - (10 * 3 * 3 if method == "burn_in" else 0)
    if method == "state_passing":
        assert [line["state_age_mean"] for line in arm.lines()] == [sum(range(8, 8 + step)) for step in range(10)]
