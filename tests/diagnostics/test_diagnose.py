"""A diagnosis finds a planted flaw where it was planted, and finds none where there is none."""

from functools import cache

import numpy as np
import pytest
import torch
from rich.console import Console

from everlong.diagnostics.config import DiagnosisConfig
from everlong.diagnostics.diagnose import diagnose
from everlong.errors import EverlongError
from everlong.models.architectures import create
from everlong.progress import Progress
from everlong.records.files import load_record, save_record
from tests.diagnostics.planted import PlantedModel, ScaledLaterModel, counting_documents

CONTEXT, LENGTH = 16, 1024


def run(model, lengths=(2000,) * 16, max_length=LENGTH, **settings):
    config = DiagnosisConfig(max_length=max_length, documents=16, targets_per_bucket=64, **settings)
    return diagnose(
        model,
        counting_documents(list(lengths)),
        context=CONTEXT,
        config=config,
        label="before",
        model_name="planted",
        seed=0,
        progress=Progress(Console(quiet=True)),
    )


def breaks_after(position, by):
    return PlantedModel(lambda read: torch.where(read > position, 1.0 + by, 1.0))


@cache
def break_after(position):
    """The diagnosis of a model that breaks there: many tests look at one."""
    return run(breaks_after(position, by=0.3))


def untrained():
    torch.manual_seed(0)
    return create("mamba2", vocab_size=16, d_model=16, n_layer=2, d_state=8, headdim=8, backend="chunked")


@pytest.mark.parametrize("position", [64, 128, 256])
def test_a_planted_break_is_found_at_its_position(position):
    verdict = break_after(position).verdict
    assert (verdict.outcome, verdict.position) == ("breaks", position)


def test_a_state_that_is_scaled_after_position_300_breaks_in_the_range_that_holds_it():
    inner = PlantedModel(lambda read: torch.where(read > 5000, 1.5, 1.0))  # what a count of 300 becomes, times 1,000
    diagnosis = run(ScaledLaterModel(inner, position=300, factor=1000.0, leaf=0))
    assert (diagnosis.verdict.outcome, diagnosis.verdict.position) == ("breaks", 256)
    assert np.abs(np.array(diagnosis.excess.mean)[:4]).max() < 1e-6


def test_the_planted_excess_is_measured_to_size():
    excess = break_after(256).excess
    before = [i for i, stop in enumerate(excess.stops) if stop <= 256]
    after = [i for i, start in enumerate(excess.starts) if start >= 256]
    assert np.abs(np.array(excess.mean)[before]).max() < 1e-6
    for i in after:  # a wrong token costs less when the model is less sure, so a little under 0.3
        assert 0.2 < excess.lower[i] <= excess.mean[i] <= excess.upper[i] < 0.31


def test_a_harm_within_the_tolerance_holds():
    verdict = run(breaks_after(128, by=0.01)).verdict
    assert (verdict.outcome, verdict.position) == ("holds", LENGTH)
    assert verdict.uses_to is None


def test_a_model_that_gains_by_what_it_carries_is_said_to_use_it():
    verdict = run(PlantedModel(lambda read: torch.where(read > 100, 0.5, 1.0))).verdict
    assert verdict.outcome == "holds"
    assert verdict.uses_to == LENGTH


def test_a_single_harming_range_is_not_a_break():
    verdict = run(PlantedModel(lambda read: torch.where((read > 64) & (read <= 128), 1.3, 1.0))).verdict
    assert verdict.outcome == "undecided"


def test_too_few_documents_are_undecided():
    diagnosis = run(breaks_after(64, by=0.3), lengths=(2000,) * 5)
    assert diagnosis.verdict.outcome == "undecided"
    assert "only 5 documents" in diagnosis.verdict.sentence


def test_documents_shorter_than_the_length_are_not_padded_into_it():
    excess = run(breaks_after(64, by=0.3), lengths=(2000,) * 9 + (300,) * 7).excess
    reach = dict(zip(excess.stops, excess.documents, strict=True))
    assert reach[256] == 16
    assert reach[1024] == 9


def test_definition_3_2_finds_the_rise_of_perplexity():
    assert "Exceeds p* from 256 tokens on" in run(breaks_after(256, by=1.0)).verdict.definition_3_2


def test_within_the_training_length_the_excess_is_exactly_zero():
    excess = run(untrained().double(), max_length=64).excess
    assert excess.starts[0] < CONTEXT == excess.stops[0]
    assert abs(excess.mean[0]) < 1e-6


def test_an_untrained_model_holds_and_gains_next_to_nothing():
    """The negative control: nothing was learnt, so nothing carried can harm or help."""
    diagnosis = run(untrained(), max_length=256)
    assert (diagnosis.verdict.outcome, diagnosis.verdict.position) == ("holds", 256)
    assert np.abs(diagnosis.excess.mean).max() < 1e-3


def test_equal_seeds_read_equal_targets():
    first, second = break_after(64), run(breaks_after(64, by=0.3))
    assert np.array_equal(first.targets, second.targets)
    for policy, values in first.losses.items():
        np.testing.assert_array_equal(values, second.losses[policy])


def test_in_range_perplexity_is_that_of_the_training_length():
    assert run(breaks_after(CONTEXT, by=5.0)).in_range_perplexity < 4  # chunks of 16 never see the break


def test_quick_reads_less():
    assert run(breaks_after(64, by=0.3), quick=True).tokens_read < break_after(64).tokens_read / 2


def test_the_record_is_written_and_read_back_whole(tmp_path):
    diagnosis = break_after(64)
    save_record(diagnosis, tmp_path / "d.json")
    again = load_record(tmp_path / "d.json")
    assert again.verdict == diagnosis.verdict
    assert again.excess.stops == diagnosis.excess.stops
    np.testing.assert_array_equal(again.losses["carry"], diagnosis.losses["carry"])
    np.testing.assert_array_equal(again.curves[0].losses, diagnosis.curves[0].losses)


def test_documents_no_longer_than_the_context_are_an_error_that_says_so():
    with pytest.raises(EverlongError, match="no held-out document is longer than the training context of 16 tokens"):
        run(breaks_after(64, by=0.3), lengths=(10, 16))
