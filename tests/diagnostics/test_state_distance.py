"""The state distance is the energy distance, its null holds what it should, a planted change is found in its place."""

import numpy as np
import pytest
import torch
from scipy import stats

from everlong.diagnostics.config import MeasuresConfig
from everlong.diagnostics.state_distance import _spearman, energy, state_distance
from everlong.diagnostics.state_statistics import state_statistics
from tests.diagnostics.examined import examined
from tests.diagnostics.planted import ScaledLaterModel, never_forgets
from tests.models.tiny import tiny_model

LONG = {"length": 512, "lengths": (530,) * 12}
CONFIG = MeasuresConfig(permutations=99)


def planted():
    return ScaledLaterModel(never_forgets(tiny_model("mamba2")), position=300, factor=7.0, leaf=2)


def test_energy_is_the_square_of_scipy_s_distance():
    x, y = np.random.default_rng(0).normal(size=(2, 20))
    pooled = np.concatenate([x, y + 1])
    labels = np.repeat([1.0, -1.0], 20)[None]
    found = energy(np.abs(pooled[:, None] - pooled[None]), labels)
    assert found[0] == pytest.approx(stats.energy_distance(x, y + 1) ** 2)


def test_a_state_that_is_scaled_after_position_300_is_found_there_and_in_its_layer():
    record = state_distance(examined(planted(), **LONG), CONFIG)
    clean = state_distance(examined(never_forgets(tiny_model("mamba2")), **LONG), CONFIG)
    ratio = record.state.energy / np.maximum(clean.state.energy, 1e-300)
    before, after = (np.array(record.positions) <= 299), (np.array(record.positions) > 300)
    np.testing.assert_allclose(ratio[:, before & (np.array(record.positions) != 16)], 1, rtol=1e-6)
    assert ratio[1, after].min() > 2
    np.testing.assert_allclose(ratio[0, after], 1, rtol=1e-6)
    assert record.state.p_value[1, after].max() < 0.05
    assert (record.state.energy[1, after] > record.state.null_upper[1, after]).all()


def test_the_statistics_show_the_planted_factor_in_the_first_position_after_it():
    found = state_statistics(examined(planted(), **LONG), CONFIG)
    clean = state_statistics(examined(never_forgets(tiny_model("mamba2")), **LONG), CONFIG)
    positions, layers = np.array(found.positions), np.array(found.layers)
    ratio = (found.by_head["rms"].mean / clean.by_head["rms"].mean)[:, layers == 1]
    np.testing.assert_allclose(ratio[positions < 300], 1, rtol=1e-6)
    first = np.argmax(positions > 300)
    assert positions[first] < 400
    np.testing.assert_allclose(np.median(ratio[first]), 7, rtol=0.25)


def test_the_null_says_nothing_where_there_is_nothing():
    """Two laws that are one: p is uniform, so below a tenth about as often as that."""
    generator = np.random.default_rng(0)
    below = 0
    for _ in range(200):
        pooled = np.concatenate(generator.normal(size=(2, 12, 3)))
        distance = np.abs(pooled[:, None] - pooled[None]).mean(-1)
        signs = np.concatenate([np.ones((1, 12)), generator.choice([-1.0, 1.0], (99, 12))])
        every = energy(distance, np.concatenate([signs, -signs], axis=1))
        below += (every >= every[0]).mean() <= 0.1
    assert 0.04 <= below / 200 <= 0.17


def test_the_end_of_the_training_range_is_no_distance_from_itself():
    record = state_distance(examined(tiny_model("gla", dtype=torch.float32)), CONFIG)
    at = record.positions.index(16)
    for law in (record.state, record.read_out):
        np.testing.assert_allclose(law.energy[:, at], 0, atol=1e-12)
        assert (law.p_value[:, at] > 0.9).all()


def test_ranks_are_correlated_only_where_there_are_any():
    assert _spearman(np.array([1.0, 2, 3, 9]), np.array([2.0, 3, 4, 5])) == pytest.approx(1)
    assert np.isnan(_spearman(np.array([1.0, np.nan, 3]), np.array([1.0, 2, 3])))
    assert np.isnan(_spearman(np.ones(5), np.arange(5.0)))
