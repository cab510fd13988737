"""Recentring takes away a harm that comes with the mean of the state, and only that."""

import numpy as np
import torch

from everlong.diagnostics.config import MeasuresConfig
from everlong.diagnostics.mean_drift import mean_drift
from tests.diagnostics.examined import CONTEXT, examined
from tests.diagnostics.planted import PlantedModel, counting_documents


def measured(nats):
    corpus = counting_documents([300] * 8)
    return mean_drift(examined(PlantedModel(nats), length=256, corpus=corpus), MeasuresConfig())


def test_a_harm_by_what_all_documents_pile_up_is_taken_away_whole():
    """The planted state counts the tokens read, the same in every document: all of it is mean."""
    record = measured(lambda read: torch.where(read > 64, 1.5, 1.0))
    far = np.array(record.starts) >= 64
    assert record.carried.lower[far].min() > 0.3
    np.testing.assert_allclose(record.recentred.mean, 0, atol=1e-6)
    np.testing.assert_allclose(record.share_taken.mean[far], 1)


def test_a_harm_within_two_training_lengths_is_beyond_it():
    """Recentred every T tokens, the count still runs from T to 2T."""
    record = measured(lambda read: torch.where(read > CONTEXT, 1.5, 1.0))
    assert record.recentred.mean[-1] > 0.3
