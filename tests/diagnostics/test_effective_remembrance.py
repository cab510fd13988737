"""Effective remembrance in one pass equals each suffix read alone, and is exactly zero where nothing is dropped."""

import numpy as np
import pytest
import torch

from everlong.diagnostics import effective_remembrance as module
from everlong.diagnostics.config import MeasuresConfig
from everlong.diagnostics.effective_remembrance import DISTANCES, distances, effective_remembrance, start_grids
from everlong.errors import EverlongError
from everlong.models.architectures import create
from tests.diagnostics.examined import CONTEXT, examined
from tests.diagnostics.planted import LastTokensModel, counting_documents
from tests.models.tiny import names, tiny_model


@pytest.mark.parametrize("architecture", names())
@pytest.mark.parametrize("memory_gib", [2.0, 1e-9])
def test_one_pass_equals_running_every_suffix_alone(architecture, memory_gib):
    model = tiny_model(architecture, dtype=torch.float32)
    examination = examined(model, lengths=(150, 60, 101))
    ends = (20, 57, 95)
    record = effective_remembrance(
        examination, MeasuresConfig(remembrance_ends=ends, remembrance_starts=9, memory_gib=memory_gib)
    )
    assert (record.sweeps > 2) == (memory_gib < 1)
    for at in record.ends:
        for document, row in enumerate(examination.panel.rows):
            if len(row) <= at.end + 1:
                assert np.isnan(at.values["signed"][document]).all()
                continue
            tokens = torch.from_numpy(row.astype(np.int64))[None]
            with torch.no_grad():
                logs = [model(tokens[:, t : at.end + 1]).logits[0, -1].double().log_softmax(-1) for t in at.starts]
            alone = distances(logs[0].exp(), torch.stack(logs).exp()).numpy()
            for name, values in zip(DISTANCES, alone, strict=True):
                np.testing.assert_allclose(at.values[name][document], values, atol=1e-5)
            nats = -torch.stack(logs)[:, row[at.end + 1]].numpy()
            np.testing.assert_allclose(at.values["signed"][document], nats - nats[0], atol=1e-5)


@pytest.mark.parametrize("architecture", names())
def test_dropping_nothing_is_exactly_zero(architecture):
    record = effective_remembrance(examined(tiny_model(architecture, dtype=torch.float32)), MeasuresConfig())
    for at in record.ends:
        assert at.starts[0] == 0
        assert all((values[:, 0] == 0).all() for values in at.values.values())


def test_what_several_ends_share_is_read_once():
    examination = examined(tiny_model("mamba2"), length=320, lengths=(330,) * 2)
    ends = tuple(range(19, 320, 20))
    record = effective_remembrance(examination, MeasuresConfig(remembrance_ends=ends))
    assert record.basis.tokens_read < record.tokens_alone / 3.5  # five times at T of thousands


def test_a_model_that_sees_its_last_32_tokens_forgets_all_before_and_nothing_after():
    examination = examined(LastTokensModel(32), length=300, lengths=(400,) * 3)
    record = effective_remembrance(examination, MeasuresConfig(remembrance_ends=(100, 299), remembrance_starts=24))
    for at in record.ends:
        kept = at.end + 1 - np.array(at.starts)
        for name, values in at.values.items():
            assert np.abs(values[:, kept >= 32]).max() < 1e-12, name
            assert np.abs(values[:, kept < 32]).min() > 1e-7, name


def test_the_distances_are_what_their_names_say():
    """Against scipy, which takes the square root of the divergence too."""
    from scipy.spatial import distance

    p, q = torch.rand(2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    p, q = p / p.sum(), q / q.sum()
    found = dict(zip(DISTANCES, distances(p, q[None])[:, 0].tolist(), strict=True))
    js = distance.jensenshannon(p, q, base=2)
    assert found["total_variation"] == pytest.approx(0.5 * float((p - q).abs().sum()))
    assert found["jensen_shannon_distance"] == pytest.approx(js)
    assert found["jensen_shannon_divergence"] == pytest.approx(js**2)
    assert found["one_minus_cosine"] == pytest.approx(distance.cosine(p, q))


def test_distances_of_certain_predictions_that_disagree_are_one():
    p, q = torch.eye(2, dtype=torch.float64)
    assert distances(p, q[None])[:, 0].tolist() == pytest.approx([1.0] * 4)


def test_signed_remembrance_is_above_zero_where_the_prefix_helps():
    """The true next token gets the surer, the more was read."""
    model = LastTokensModel(64, helps=True)
    examination = examined(model, length=128, corpus=counting_documents([200] * 4))
    record = effective_remembrance(examination, MeasuresConfig())
    at = record.ends[-1]
    assert at.estimates["signed"].mean[at.starts.index(127)] > 0.5


@pytest.mark.parametrize("end", [1, 2, 3, 50, 8191])
@pytest.mark.parametrize("count", [1, 2, 3, 31, 32])
def test_starts_ascend_from_zero_and_are_no_more_than_asked_for(end, count):
    grids = start_grids([end, 10_000], count)
    assert list(grids) == [end, 10_000]
    for last, grid in grids.items():
        assert grid[0] == 0
        assert list(grid) == sorted(set(grid))
        assert grid[-1] <= last
        assert len(grid) <= count


def test_an_end_that_no_document_reaches_is_an_error():
    with pytest.raises(EverlongError, match="T = 96 needs"):
        effective_remembrance(examined(tiny_model("gla")), MeasuresConfig(remembrance_ends=(96,)))


def test_an_untrained_model_hardly_depends_on_its_past():
    """The negative control."""
    torch.manual_seed(0)
    model = create("mamba2", vocab_size=16, d_model=16, n_layer=2, d_state=8, headdim=8, backend="chunked")
    at = effective_remembrance(examined(model), MeasuresConfig()).ends[-1]
    assert at.values["total_variation"].max() < 0.05
    far = at.end + 1 - np.array(at.starts) >= CONTEXT
    assert at.values["total_variation"][:, far].max() < 1e-3
    assert np.abs(at.values["signed"][:, far]).max() < 1e-3


def test_the_default_ends_are_four_training_lengths_and_the_length():
    assert module.default_ends(2048, 65536) == (8191, 65535)
    assert module.default_ends(64, 100) == (99,)
