"""The bundled model is small, is what its record says, and really fails."""

import json

import pytest
from rich.console import Console

from everlong.data.config import DataConfig
from everlong.diagnostics.config import DiagnosisConfig
from everlong.diagnostics.diagnose import diagnose
from everlong.progress import Progress
from everlong.workflows._subject import bundled_folder, open_subject
from everlong.workflows.config import BUNDLED, RuntimeConfig

QUIET = Progress(Console(quiet=True))


@pytest.fixture(scope="module")
def record():
    return json.loads((bundled_folder() / "record.json").read_text())


def test_it_is_the_only_model_in_the_package_and_small():
    folder = bundled_folder()
    assert list(folder.parent.rglob("*.safetensors")) == [folder / "model.safetensors"]
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3e6


def test_the_record_keeps_the_figures_of_three_bases_and_the_middle_one_is_bundled(record):
    excess = {seed: base["before"]["excess"][0] for seed, base in record["bases"].items()}
    assert len(excess) == 3
    assert sorted(excess, key=lambda seed: excess[seed])[1] == str(record["chosen_seed"])


def test_every_base_failed_and_was_repaired_beyond_its_control(record):
    for base in record["bases"].values():
        assert base["before"]["excess"][0] >= 0.15
        assert base["before"]["excess"][1] > 0.1
        assert base["state_passing"]["taken_away"] >= 0.9
        assert base["zero"]["taken_away"] < 0.25


def test_the_bundled_model_breaks_within_2048_bytes_of_held_out_modules():
    """Measured here and now, on a part of the held-out modules."""
    config = DiagnosisConfig(max_length=2048, documents=12, targets_per_bucket=128, quick=True)
    subject = open_subject(BUNDLED, None, DataConfig(), config, RuntimeConfig(), QUIET, trains=False)
    diagnosis = diagnose(
        subject.checkpoint.model,
        subject.text.held_out,
        context=subject.context,
        config=config,
        label="before",
        model_name=BUNDLED,
        seed=0,
        progress=QUIET,
    )
    assert subject.context == 64
    assert diagnosis.verdict.outcome == "breaks"
    assert diagnosis.excess.lower[-1] > 0.1
    assert diagnosis.in_range_perplexity < 4.5
