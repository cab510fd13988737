"""TBTT is reading a document by hand, chunk by chunk, with the state carried and no gradient across chunks."""

import pytest
import torch
from torch.nn import functional as F

from everlong.data.contiguous_streams import ContiguousStreams
from everlong.errors import EverlongError
from everlong.interventions.methods import create
from everlong.models.architectures import create as create_model
from tests.data.test_shuffled_chunks import corpus_of
from tests.interventions.states import LENGTH, SPEC, final_state, same
from tests.models.tiny import TINY

ROWS = torch.arange(4)


def chunk_gradients(model, initial, tokens, targets):
    """Logits, final state and gradients of one row."""
    output = model(tokens, initial)
    loss = F.cross_entropy(output.logits.flatten(0, 1), targets.flatten())
    return output, torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize("architecture", TINY)
def test_it_equals_carrying_each_document_by_hand(architecture):
    torch.manual_seed(0)
    model = create_model(architecture, **TINY[architecture]).double()
    streams = ContiguousStreams(corpus_of(13, 9, 17, 7), length=4, batch_size=2, seed=0)
    method = create("tbtt", seed=0)
    by_hand = [model.zero_state(1) for _ in range(2)]
    begun = 0
    for step in range(8):
        batch = streams.batch(step)
        tokens, targets = batch.tokens % 11, batch.targets % 11
        initial = method.initial_state(batch.starts, model.state_spec, step, batch.rows)
        output, gradients = chunk_gradients(model, initial, tokens, targets)
        expected = []
        for row in range(2):
            if batch.tokens[row, 0] % 1000 == 0:
                by_hand[row] = model.zero_state(1)
                begun += step > 0
            own, of_row = chunk_gradients(model, by_hand[row], tokens[row : row + 1], targets[row : row + 1])
            torch.testing.assert_close(output.logits[row : row + 1], own.logits)
            by_hand[row] = own.state.detach()
            expected.append(of_row)
            age = batch.tokens[row, 0] % 1000
            assert method.ages(batch.rows)[row] == age
        for found, one, other in zip(gradients, *expected, strict=True):
            torch.testing.assert_close(found, (one + other) / 2)
        method.observe(output.state, method.ages(batch.rows) + 4)
    assert begun >= 2


def test_rows_that_begin_a_document_start_from_zero_and_the_others_where_they_ended():
    method = create("tbtt", seed=0)
    for step in range(4):
        starts = torch.tensor([step == 0, step == 2, False, True])
        state = method.initial_state(starts, SPEC, step, ROWS)
        for row in range(4):
            one = torch.tensor([row])
            fresh = bool(starts[row]) or step == 0
            assert same(state.rows(one), SPEC.zeros(1) if fresh else final_state(step - 1, one))
            assert bool(method.ages(ROWS)[row]) != fresh
        method.observe(final_state(step, ROWS), method.ages(ROWS) + LENGTH)


def test_rows_are_reset_by_chance_as_those_of_state_passing_with_the_same_seed():
    arms = [create(name, seed=5, reset_probability=0.4) for name in ("tbtt", "state_passing")]
    zeroed = 0
    for step in range(8):
        ages = []
        for arm in arms:
            arm.initial_state(torch.zeros(4, dtype=torch.bool), SPEC, step, ROWS)
            ages.append(arm.ages(ROWS))
            arm.observe(final_state(step, ROWS), ages[-1] + LENGTH)
        assert torch.equal(*ages)
        zeroed += int((ages[0] == 0).sum()) if step else 0
    assert 0 < zeroed < 28


def test_its_settings_say_how_far_a_gradient_goes_back():
    settings = create("tbtt", seed=0).settings()
    assert settings["gradient_horizon_chunks"] == 1
    assert (settings["data_order"], settings["reset_probability"]) == ("contiguous", 0.0)
    with pytest.raises(EverlongError, match=r"reset_probability is 2\.0; it must lie between 0 and 1"):
        create("tbtt", seed=0, reset_probability=2.0)
