"""Exchanging parts of the state finds the part that does the harm, and all of them together take all of it away."""

import numpy as np
import pytest
import torch

from everlong.diagnostics.config import MeasuresConfig
from everlong.diagnostics.transplant import mix, state_parts, transplant
from everlong.errors import EverlongError
from everlong.models.architectures import create
from tests.diagnostics.examined import CONTEXT, LENGTH, examined
from tests.diagnostics.planted import GuiltyLeafModel, counting_documents
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


@pytest.mark.parametrize("guilty", [0, 1, 2])
def test_the_leaf_that_does_the_harm_is_ranked_first_and_takes_all_of_it_away(guilty):
    model = GuiltyLeafModel(lambda read: torch.where(read > 30, 1.5, 1.0), guilty)
    examination = examined(model, corpus=counting_documents([LENGTH + 5] * 8))
    record = transplant(examination, MeasuresConfig())
    assert record.excess.lower.min() > 0.3
    first = record.ranked[0]
    assert record.parts[first] == model.state_spec.leaves[guilty].path
    assert record.share_taken.mean[first] == record.share_brought.mean[first] == pytest.approx(1)
    others = list(record.ranked[1:])
    np.testing.assert_allclose(record.share_taken.mean[others], 0, atol=1e-9)
    of_role = record.parts.index("all recurrent" if guilty < 2 else "all other")
    assert record.share_taken.mean[of_role] == pytest.approx(1)
    if guilty < 2:
        assert set(record.head_layers) == {guilty}
        np.testing.assert_allclose(record.heads_taken.mean[:, 0], 0, atol=1e-9)
        np.testing.assert_allclose(record.heads_taken.mean[:, 1], record.excess.mean)


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
