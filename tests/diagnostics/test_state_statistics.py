"""State statistics are those of the states, and say which heads leave their law."""

import numpy as np
import pytest
import torch

from everlong.diagnostics._recurrences import matrices
from everlong.diagnostics.config import MeasuresConfig
from everlong.diagnostics.state_statistics import BY_HEAD, _split, effective_rank, state_statistics
from everlong.errors import EverlongError
from tests.diagnostics.examined import examined
from tests.models.tiny import names, tiny_model


@pytest.mark.parametrize("architecture", names())
def test_they_are_those_of_the_states_read_in_one_piece(architecture):
    model = tiny_model(architecture)
    examination = examined(model)
    record = state_statistics(examination, MeasuresConfig())
    tokens = torch.from_numpy(np.stack(examination.full_rows).astype(np.int64))
    for at, position in enumerate(record.positions):
        with torch.no_grad():
            leaves = [leaf for _, leaf in matrices(model(tokens[:, :position]).state)]
        full = torch.cat([leaf.flatten(1) for leaf in leaves], dim=1)
        heads = torch.cat([leaf.flatten(2) for leaf in leaves], dim=1) if _alike(leaves) else leaves[0].flatten(2)
        columns = slice(0, heads.shape[1])
        np.testing.assert_allclose(record.full["std"].mean[at], full.std(1, correction=0).mean(), rtol=1e-6)
        np.testing.assert_allclose(record.full["largest"].mean[at], full.abs().amax(1).mean(), rtol=1e-6)
        found = {name: record.by_head[name].mean[at, columns] for name in BY_HEAD}
        np.testing.assert_allclose(found["mean"], heads.mean(2).mean(0), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found["std"], heads.std(2, correction=0).mean(0), rtol=1e-4)
        np.testing.assert_allclose(found["rms"], heads.square().mean(2).sqrt().mean(0), rtol=1e-4)
        np.testing.assert_allclose(found["largest"], heads.abs().amax(2).mean(0), rtol=1e-4)


def _alike(leaves):
    return len({leaf.shape[2:].numel() for leaf in leaves}) == 1


def test_the_effective_rank_of_known_matrices():
    matrices = torch.stack([torch.eye(5), torch.ones(5, 5), torch.diag(torch.tensor([1.0, 1, 0, 0, 0])) * 7])
    np.testing.assert_allclose(effective_rank(matrices), [5, 1, 2], rtol=1e-5)
    assert effective_rank(torch.zeros(3, 3)) == 0
    assert effective_rank(torch.full((3, 3), float("nan"))).isnan()


def test_mean_and_spread_are_told_apart_without_the_noise_of_the_mean():
    """States M + noise: over many drawings the two come out as they were put in."""
    generator = np.random.default_rng(0)
    mean = np.full(50, 0.6)
    found = []
    for _ in range(400):
        states = mean + generator.normal(0, 2.0, (4, 50))
        found.append(_split((states @ states.T / 50)[None]))
    assert np.mean([spread for _, spread in found]) == pytest.approx(4.0, rel=0.03)
    assert np.median([square for square, _ in found]) == pytest.approx(0.36, abs=0.15)


def test_a_state_that_all_documents_share_is_all_mean():
    grams = np.ones((3, 6, 6))
    mean_square, spread = _split(grams)
    np.testing.assert_allclose(mean_square, 1)
    np.testing.assert_allclose(spread, 0, atol=1e-12)


def test_the_head_that_never_forgets_leaves_its_law_farthest():
    """One head of tiny Mamba-2 hardly decays: its state grows with every token."""
    model = tiny_model("mamba2")
    with torch.no_grad():
        dict(model.named_parameters())["backbone.layers.1.mixer.A_log"][2] = -12.0
    record = state_statistics(examined(model, length=400, lengths=(500,) * 4), MeasuresConfig(worst_heads=3))
    first = record.worst[0]
    assert (record.layers[first], record.heads[first]) == (1, 2)
    assert record.departure.lower[first] > 0.5
    assert record.departure_at[first] > 200


def test_documents_that_are_too_short_for_a_law_are_an_error():
    with pytest.raises(EverlongError, match="1 held-out documents are longer than --max-length 96, 2 are needed"):
        state_statistics(examined(tiny_model("gla"), lengths=(120, 60, 50)), MeasuresConfig())
