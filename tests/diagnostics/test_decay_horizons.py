"""Decay horizons are those of the decays that are applied, however the text is cut into pieces."""

import numpy as np
import pytest
import torch

from everlong.diagnostics._decays import THRESHOLDS, Decays
from everlong.diagnostics._recurrences import watching
from everlong.diagnostics.config import MeasuresConfig
from everlong.diagnostics.decay_horizons import _growth, decay_horizons, write_positions
from tests.diagnostics.examined import CONTEXT, LENGTH, examined
from tests.diagnostics.planted import never_forgets
from tests.models.tiny import names, tiny_model


def follow(series, pieces, writes, context=8):
    decays, start = Decays(context, writes), 0
    for piece in pieces:
        decays.see({name: part if name == "A" else part[:, start : start + piece] for name, part in series.items()})
        start += piece
    return decays


@pytest.mark.parametrize("pieces", [(200,), (7, 1, 92, 100), (1,) * 200])
def test_a_constant_decay_has_its_known_horizons(pieces):
    decays = follow({"log_decay": torch.full((2, 200, 3), -0.0999)}, pieces, (0, 5, 50))
    assert (decays.horizons[0] == 11).all()  # 11 * 0.0999 is the first above 1
    assert (decays.horizons[1] == 47).all()
    np.testing.assert_allclose(decays.in_context, -0.0999 * 8, rtol=1e-6)
    np.testing.assert_allclose(decays.whole, -0.0999 * 200, rtol=1e-6)


def test_mamba_1_has_a_decay_for_every_channel_and_state():
    series = {"dt": torch.full((1, 100, 2), 0.5), "A": torch.tensor([[-0.101, -1.01], [-0.201, -4.01]])}
    decays = follow(series, (30, 70), (3,))
    assert decays.horizons[0, 0, :, :, 0].tolist() == [[20, 2], [10, 1]]
    np.testing.assert_allclose(decays.in_context[0], 8 * 0.5 * series["A"], rtol=1e-6)


@pytest.mark.parametrize("pieces", [(150,), (3, 40, 1, 106)])
def test_horizons_of_changing_decays_equal_a_search_write_by_write(pieces):
    log_decay = -torch.rand(2, 150, 3, 4, generator=torch.Generator().manual_seed(0)) * 0.2
    writes = (0, 10, 43, 140)
    found = follow({"log_decay": log_decay}, pieces, writes).horizons
    for index, write in enumerate(writes):
        total = -log_decay[:, write + 1 :].double().cumsum(1)
        for threshold, bound in enumerate(THRESHOLDS.values()):
            reached = total >= bound
            first = torch.where(reached.any(1), reached.int().argmax(1) + 1.0, torch.inf)
            torch.testing.assert_close(found[threshold, ..., index], first.double())
    assert torch.isinf(found[1, ..., -1]).all(), "the text ends before"


@pytest.mark.parametrize("architecture", names())
def test_sums_are_those_of_the_decays_of_a_whole_read(architecture):
    model = tiny_model(architecture)
    examination = examined(model)
    record = decay_horizons(examination, MeasuresConfig())
    sums = []

    def see(layer, inputs, output):
        decay = inputs["log_decay"] if "log_decay" in inputs else inputs["dt"].unsqueeze(-1) * inputs["A"]
        sums.append(decay.flatten(3).mean(-1) if decay.ndim > 3 else decay)

    tokens = torch.from_numpy(np.stack(examination.full_rows).astype(np.int64))[:, :LENGTH]
    with watching(model, see), torch.no_grad():
        model(tokens)
    every = torch.cat(sums, dim=2)
    np.testing.assert_allclose(record.log_decay_context.mean, every[:, :CONTEXT].sum(1).mean(0), rtol=1e-5)
    np.testing.assert_allclose(record.log_decay_length.mean, every.sum(1).mean(0), rtol=1e-5)
    assert len(record.layers) == len(record.log_decay_length.mean) == record.median.shape[1]


def test_the_head_that_never_forgets_outlives_the_context_and_predicts_a_break():
    record = decay_horizons(examined(never_forgets(tiny_model("mamba2"))), MeasuresConfig())
    assert record.outliving == tuple(range(len(record.layers)))
    assert np.isinf(record.slowest).all()
    assert record.predicted_break is not None
    assert CONTEXT < record.predicted_break <= 2 * CONTEXT + 1


def test_a_model_that_forgets_within_its_context_predicts_none():
    model = tiny_model("mamba2")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.fill_(3.0)
    record = decay_horizons(examined(model), MeasuresConfig())
    assert record.outliving == ()
    assert record.predicted_break is None


def test_what_never_decays_grows_with_the_square_of_time_in_its_mean_and_with_time_in_its_spread():
    for moments, power in (([1.0, 0.0], 2), ([0.0, 1.0], 1)):
        in_range = [np.array(moments).reshape(2, 1, 1)]
        at, growth = _growth([np.array([[-1e-9]])], in_range, 16, 256)
        np.testing.assert_allclose(growth[0], (at / 16) ** power, rtol=1e-5)


def test_writes_are_followed_from_half_the_training_length_to_a_quarter_of_the_length():
    assert write_positions(64, 16384, 4) == (32, 161, 813, 4096)
    assert write_positions(16, 40, 4) == (8, 9, 10)
