"""Used memory: a model that sees so many tokens uses so many, and one that its past harms is not praised."""

import numpy as np
import pytest
import torch

from everlong.diagnostics.config import MeasuresConfig
from everlong.diagnostics.used_memory import used_memory, window_widths
from everlong.models.architectures import create
from tests.diagnostics.examined import examined
from tests.diagnostics.planted import LastTokensModel, PlantedModel, counting_documents


def measured(model, length=512):
    corpus = counting_documents([length + 10] * 8)
    return used_memory(examined(model, length=length, corpus=corpus), MeasuresConfig())


@pytest.mark.parametrize("width", [8, 32, 64])
def test_a_model_that_sees_its_last_tokens_only_uses_these(width):
    record = measured(LastTokensModel(width, helps=True))
    assert record.used == record.used_of_best == width
    assert f"uses {width} tokens" in record.sentence


def test_headroom_is_what_longer_contexts_gain_over_the_training_length():
    record = measured(PlantedModel(lambda read: torch.where(read > 40, 0.5, 1.0)))
    assert record.headroom.mean[0] == pytest.approx(
        0.45, abs=0.05
    )  # a wrong token costs less when the model is less sure
    assert record.used == 64  # of the widths, the first whose scored targets have all read more than 40 tokens


def test_a_full_context_that_harms_is_no_memory():
    record = measured(PlantedModel(lambda read: torch.where(read > 100, 2.0, 1.0)))
    assert "The full context is worse" in record.sentence
    assert record.used is None
    assert record.used_of_best == 1


def test_an_untrained_model_uses_next_to_nothing():
    """The negative control."""
    torch.manual_seed(0)
    model = create("mamba2", vocab_size=16, d_model=16, n_layer=2, d_state=8, headdim=8, backend="chunked")
    record = measured(model, length=128)
    assert record.used == 1
    assert np.abs(record.headroom.mean) < 1e-3


def test_windows_halve_down_to_one_token_and_double_to_eight_training_lengths():
    assert window_widths(64, 16384) == (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    assert window_widths(64, 300) == (1, 2, 4, 8, 16, 32, 64, 128)
