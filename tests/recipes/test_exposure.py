"""The recipe of exposure: settings that vary it and hold it, end to end at a toy size, and what is read off."""

from pathlib import Path

import numpy as np
import pytest

from everlong.data.config import DataConfig
from everlong.diagnostics.config import DiagnosisConfig
from everlong.errors import EverlongError
from everlong.interventions.arms import parse_arm
from everlong.interventions.exposure import expected_exposure
from everlong.recipes import exposure
from everlong.recipes.exposure import AGES, HELD, REFERENCE, SETTINGS, ExposureRecipe, main
from everlong.records.files import load_record
from everlong.training.schedule import relative_learning_rates
from everlong.workflows.config import MachineConfig

DEFAULT = ExposureRecipe(output=Path(), bases=("base",))


def expected(label: str) -> np.ndarray:
    """In closed form, at each age, by the default recipe's sizes, over the reference's peak."""
    setting, recipe = SETTINGS[label], DEFAULT
    training = setting.training(recipe)
    values = expected_exposure(
        context=recipe.context * setting.context,
        batch_size=training.batch_size,
        learning_rates=relative_learning_rates(training),
        reset_probability=parse_arm(setting.arm(recipe)).settings["reset_probability"],
        ages=[age * recipe.context for age in AGES],
    )
    return setting.rate * np.array(values)


@pytest.mark.parametrize(("first", "second"), [pair for pair in HELD if "burn-in" not in pair])
def test_what_is_held_is_of_one_exposure_in_expectation(first, second):
    ratio = expected(second) / expected(first)
    assert abs(ratio[0] - 1) < 0.08
    if second != "half-reset":
        assert abs(ratio[1] - 1) < 0.25  # where steps are more, states come to be older


def test_settings_at_a_fixed_context_over_reset_probability_are_those_of_the_correction():
    varied = ("steps-x3", "batch-x3", "rate-x3", "context-x4")
    length = {label: SETTINGS[label].context / SETTINGS[label].reset for label in (REFERENCE, *varied)}
    assert set(length.values()) == {1}
    tokens = {label: SETTINGS[label].rows * SETTINGS[label].context * SETTINGS[label].steps for label in varied}
    assert tokens == {"steps-x3": 3, "batch-x3": 3, "rate-x3": 1, "context-x4": 1}


def test_settings_are_trained_measured_and_set_against_exposure(tmp_path, model, text, capsys, monkeypatch):
    few = ("zero", REFERENCE, "half-batch-twice-rate", "burn-in")
    monkeypatch.setattr(exposure, "SETTINGS", {label: SETTINGS[label] for label in few})
    monkeypatch.setattr(exposure, "HELD", held := tuple(pair for pair in HELD if set(pair) <= set(few)))
    held_out = tmp_path / "held_out"
    held_out.mkdir()
    for file in sorted(text.glob("*.txt"))[:8]:
        (held_out / file.name).write_text(file.read_text())
    recipe = ExposureRecipe(
        output=tmp_path / "runs",
        bases=(str(model), str(model)),
        context=16,
        steps=16,
        batch_size=4,
        data=DataConfig(data=(str(text),), held_out=(str(held_out),), tokenizer="bytes"),
        diagnosis=DiagnosisConfig(max_length=64, documents=8, targets_per_bucket=16),
        machine=MachineConfig(backend="chunked"),
    )
    study, experiment = main(recipe)
    assert study.labels == few
    met = dict(zip(study.labels, study.exposure, strict=True))
    assert np.array_equal(met["zero"], np.zeros(len(AGES)))
    assert met[REFERENCE][0] > 0
    assert met["burn-in"][0] > 0
    assert met["burn-in"][1] == 0
    assert len(experiment.bases) == 2
    assert [(pair.first, pair.second) for pair in study.pairs] == list(held)
    assert len(study.correlations) == len(AGES)
    assert study.step_tokens == (64, 64, 32, 32)
    for found in (study.correlations, study.share_correlations):
        assert np.all(np.abs(found[0][0]) <= 1)
    printed = capsys.readouterr().out
    assert "| half-batch-twice-rate minus burn-in |" in printed
    assert "| reference | 16 steps of 4 rows of 16, rate 0.0003, state passing, reset probability=0.1 |" in printed
    records = tmp_path / "runs" / "records"
    assert np.array_equal(load_record(records / "exposure.json").exposure, study.exposure)
    assert [arm.label for arm in load_record(records / "experiment.json").arms] == ["before", *few]


def test_bad_settings_are_refused_before_any_work(tmp_path):
    with pytest.raises(EverlongError, match="--bases is empty"):
        main(ExposureRecipe(output=tmp_path, bases=()))
    with pytest.raises(EverlongError, match="--steps 2 is too few"):
        main(ExposureRecipe(output=tmp_path, bases=("base",), steps=2))
    with pytest.raises(EverlongError, match="--data needs --held-out"):
        main(ExposureRecipe(output=tmp_path, bases=("base",), data=DataConfig(data=("text",), tokenizer="bytes")))
