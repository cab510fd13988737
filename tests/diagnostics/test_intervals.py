"""Intervals over documents: they cover what they say they cover."""

import numpy as np
import pytest

from everlong.diagnostics import _intervals
from everlong.diagnostics._intervals import simultaneous_intervals


@pytest.mark.parametrize(("documents", "low", "high"), [(12, 0.93, 1.0), (40, 0.90, 0.99)])
def test_all_columns_are_covered_at_once_about_as_often_as_stated(documents, low, high, monkeypatch):
    monkeypatch.setattr(_intervals, "RESAMPLES", 1000)
    generator = np.random.default_rng(0)
    truth = np.array([0.0, 0.3, 1.0, -0.2])
    covered = 0
    for trial in range(200):
        values = truth + generator.normal(size=(documents, 1)) * 0.3 + generator.normal(size=(documents, 4))
        found = simultaneous_intervals(values, confidence=0.95, seed=trial)
        covered += bool(((found.lower <= truth) & (truth <= found.upper)).all())
    assert low <= covered / 200 <= high


def test_the_bootstrap_by_counts_is_the_bootstrap_by_drawing_documents(monkeypatch):
    """Each resample drawn out as rows gives the same largest t as the products with the counts."""
    monkeypatch.setattr(_intervals, "RESAMPLES", 500)
    generator = np.random.default_rng(0)
    values = 5.0 + generator.normal(size=(40, 3)) * [0.01, 1.0, 10.0]
    values[30:, 2] = np.nan
    found = _intervals._largest_t(values, 0.95, seed=3)
    draws = np.random.default_rng(3).multinomial(40, np.full(40, 1 / 40), size=500)
    largest = []
    for counts in draws:
        mean, error = _intervals._mean_and_error(values[np.repeat(np.arange(40), counts)])
        largest.append(np.max(np.abs(mean - np.nanmean(values, axis=0)) / error))
    np.testing.assert_allclose(found, np.quantile(largest, 0.95), rtol=1e-9)


def test_a_column_that_hardly_varies_does_not_break_the_bootstrap():
    values = np.stack([np.full(40, 0.1), np.random.default_rng(0).normal(size=40)], axis=1)
    values[0, 0] = 0.2
    found = simultaneous_intervals(values, confidence=0.95, seed=0)
    assert np.isfinite(found.upper).all()
    assert (found.upper - found.lower)[1] < 2


def test_under_thirty_documents_students_t_is_used_and_said():
    found = simultaneous_intervals(np.random.default_rng(0).normal(size=(10, 3)), confidence=0.95, seed=0)
    assert "Student" in found.method
    assert "Bonferroni" in found.method


def test_documents_that_do_not_reach_a_column_do_not_count_there():
    values = np.array([[1.0, 2.0], [3.0, np.nan], [2.0, 4.0], [2.0, np.nan]])
    found = simultaneous_intervals(values, confidence=0.95, seed=0)
    assert found.documents.tolist() == [4, 2]
    assert found.mean.tolist() == [2.0, 3.0]


def test_a_single_document_gives_no_interval():
    found = simultaneous_intervals(np.array([[0.5]]), confidence=0.95, seed=0)
    assert np.isnan(found.lower[0])
    assert np.isnan(found.upper[0])


def test_several_rows_of_one_document_would_be_too_sure_and_units_matter():
    """Doubling the documents by copies would shrink the interval: why a document is one unit."""
    values = np.random.default_rng(1).normal(size=(16, 1))
    once = simultaneous_intervals(values, confidence=0.95, seed=0)
    twice = simultaneous_intervals(np.concatenate([values, values]), confidence=0.95, seed=0)
    assert (twice.upper - twice.lower)[0] < 0.8 * (once.upper - once.lower)[0]
