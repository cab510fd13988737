"""Exchanging parts of the state finds the part that does the harm, and all of them together take all of it away."""

import numpy as np
import pytest
import torch

from everlong.diagnostics.config import MeasuresConfig
from everlong.diagnostics.transplant import mix, state_parts, transplant
from everlong.errors import EverlongError
from everlong.models.architectures import create
from tests.diagnostics.examined import CONTEXT, LENGTH, examined
from tests.diagnostics.planted import ScaledLaterModel, never_forgets
from tests.models.tiny import asymmetric_state, names, tiny_model


@pytest.mark.parametrize("architecture", names())
def test_all_leaves_together_take_away_all_of_the_excess(architecture):
    record = transplant(examined(tiny_model(architecture)), MeasuresConfig())
    every = record.parts.index("all")
    np.testing.assert_array_equal(record.mended[..., every], record.fresh)
    np.testing.assert_array_equal(record.spoiled[..., every], record.carried)
    assert record.share_taken.mean[every] == pytest.approx(1.0)
    assert record.share_brought.mean[every] == pytest.approx(1.0)
    assert np.abs(record.carried - record.fresh).min() > 0


@pytest.mark.parametrize("architecture", names())
def test_losses_are_those_of_the_document_read_on_and_of_its_fresh_window(architecture):
    model = tiny_model(architecture)
    examination = examined(model)
    record = transplant(examination, MeasuresConfig())
    for document, row in enumerate(examination.full_rows):
        tokens = torch.from_numpy(row.astype(np.int64))[None]
        for at, position in enumerate(record.positions):
            for start, losses in ((0, record.carried), (position - CONTEXT, record.fresh)):
                last = position + record.targets
                with torch.no_grad():
                    logits = model(tokens[:, start:last]).logits[0, position - start :]
                nats = torch.nn.functional.cross_entropy(logits, tokens[0, position + 1 : last + 1])
                np.testing.assert_allclose(losses[document, at], float(nats), rtol=1e-5)


@pytest.mark.parametrize("leaf", [0, 2])
def test_the_leaf_that_was_spoiled_is_ranked_first(leaf):
    model = ScaledLaterModel(never_forgets(tiny_model("mamba2")), position=40, factor=100.0, leaf=leaf)
    record = transplant(examined(model, lengths=(LENGTH + 5,) * 12), MeasuresConfig())
    assert record.parts[record.ranked[0]] == model.state_spec.leaves[leaf].path
    assert record.excess.lower[-1] > 0.1
    first = record.ranked[0]
    assert record.share_taken.mean[first] > 0.5
    assert record.share_taken.mean[first] > record.share_taken.mean[record.parts.index("all other")] + 0.3
    assert set(record.head_layers) == {model.state_spec.leaves[leaf].layer}


def test_an_exchanged_head_is_that_head_alone():
    model = tiny_model("gla")
    mine, theirs = asymmetric_state(model, 2), model.zero_state(2)
    mixed = mix(mine, theirs, {0}, head=1)
    assert torch.equal(mixed.leaves[0][:, 0], mine.leaves[0][:, 0])
    assert not mixed.leaves[0][:, 1].any()
    assert all(torch.equal(a, b) for a, b in zip(mixed.leaves[1:], mine.leaves[1:], strict=True))


@pytest.mark.parametrize("architecture", names())
def test_the_parts_are_every_leaf_and_their_roles(architecture):
    spec = tiny_model(architecture).state_spec
    parts = state_parts(spec)
    assert parts["all"] == parts["all recurrent"] | parts["all other"]
    assert {spec.leaves[i].role for i in parts["all recurrent"]} == {"recurrent"}
    assert len(parts) == 3 + len(spec.leaves)


def test_an_untrained_model_has_nothing_to_take_away():
    """The negative control."""
    torch.manual_seed(0)
    model = create("mamba2", vocab_size=16, d_model=16, n_layer=2, d_state=8, headdim=8, backend="chunked")
    record = transplant(examined(model), MeasuresConfig())
    assert np.abs(record.taken.mean).max() < 1e-3


def test_a_length_without_room_is_an_error():
    with pytest.raises(EverlongError, match="no position beyond 16 tokens"):
        transplant(examined(tiny_model("gla"), length=20), MeasuresConfig())
