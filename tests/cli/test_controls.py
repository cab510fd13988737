"""`everlong diagnose` finds planted flaws where they were planted, and finds none where there is none."""

from pathlib import Path

import numpy as np
import pytest
import torch

import everlong
from everlong.checkpoints._checkpoint import Checkpoint
from everlong.cli.main import main
from everlong.loading import save
from everlong.records.files import load_record
from everlong.workflows import _subject
from tests.diagnostics.planted import LastTokensModel, PlantedModel, ScaledLaterModel, counting_documents

CONTEXT, LENGTH = 16, 1024


@pytest.fixture(scope="module")
def counting(tmp_path_factory) -> Path:
    """Sixteen files whose bytes count upwards modulo 16."""
    folder = tmp_path_factory.mktemp("counting")
    for index, document in enumerate(counting_documents([1200] * 16).documents):
        (folder / f"{index:02d}.txt").write_bytes(document.tokens.astype(np.uint8).tobytes())
    return folder


@pytest.fixture
def diagnosed(counting, tmp_path, monkeypatch):
    """Runs the verb on a model that no checkpoint can hold; gives back exit code and run folder."""

    def run(model, *flags: str) -> tuple[int, Path]:
        opened = Checkpoint(
            model=model,
            format="everlong",
            context=CONTEXT,
            tokenizer="bytes",
            folder=tmp_path,
            name="planted",
            config={},
            container="safetensors",
        )
        monkeypatch.setattr(_subject, "open_model", lambda *_, **__: opened)
        folder = tmp_path / "run"
        settings = ["--data", str(counting), "--max-length", str(LENGTH), "--documents", "16"]
        code = main(["diagnose", "planted", "--output", str(folder), *settings, "--targets-per-bucket", "64", *flags])
        return code, folder

    return run


def test_a_state_that_is_scaled_after_position_300_is_found_in_the_bucket_that_holds_it(diagnosed, capsys):
    inner = PlantedModel(lambda read: torch.where(read > 5000, 1.5, 1.0))  # what a count of 300 becomes, times 1,000
    model = ScaledLaterModel(inner, position=300, factor=1000.0, leaf=0)
    code, folder = diagnosed(model, "--measures", "none", "--fail-above", "0.1")
    found = load_record(folder / "records" / "diagnosis-before.json")
    assert (found.verdict.outcome, found.verdict.position) == ("breaks", 256)
    assert np.abs(np.array(found.excess.mean)[:4]).max() < 1e-6
    assert code == 1
    printed = capsys.readouterr().out
    assert "Breaks at 256 tokens" in printed
    assert "before at 512-1,024" in printed
    assert "Breaks at 256 tokens" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_model_that_sees_its_last_32_tokens_uses_32_and_forgets_what_is_before(diagnosed, capsys):
    model = LastTokensModel(32, helps=True)
    code, folder = diagnosed(model, "--measures", "effective_remembrance", "used_memory")
    assert code == 0
    assert load_record(folder / "records" / "used_memory-before.json").used == 32
    for at in load_record(folder / "records" / "effective_remembrance-before.json").ends:
        kept = at.end + 1 - np.array(at.starts)
        for name, values in at.values.items():
            assert np.abs(values[:, kept >= 32]).max() < 1e-12, name
        assert np.abs(at.values["total_variation"][:, kept < 32]).min() > 0
    printed = capsys.readouterr().out
    assert "The model uses 32 tokens" in printed
    assert "Breaks" not in printed


@pytest.mark.parametrize("architecture", ["mamba2", "rwkv6"])
def test_an_untrained_model_is_not_said_to_break_and_its_figures_have_intervals(architecture, text, tmp_path):
    torch.manual_seed(0)
    sizes = {"mamba2": {"d_state": 8, "headdim": 8}, "rwkv6": {"headdim": 8}}[architecture]
    folder = tmp_path / "untrained"
    save(
        everlong.create(architecture, vocab_size=256, d_model=16, n_layer=2, **sizes),
        *(folder,),
        context=CONTEXT,
        tokenizer="bytes",
    )
    command = ["diagnose", str(folder), "--data", str(text), "--output", str(tmp_path / "run"), "--quick", "True"]
    assert main([*command, "--max-length", "512", "--documents", "12", "--fail-above", "0.001"]) == 0
    found = load_record(tmp_path / "run" / "records" / "diagnosis-before.json")
    assert (found.verdict.outcome, found.verdict.position) == ("holds", 512)
    assert found.verdict.uses_to is None
    beyond = slice(1, None)
    lower, mean, upper = (np.array(getattr(found.excess, name))[beyond] for name in ("lower", "mean", "upper"))
    assert (np.abs(mean) < 1e-3).all()
    assert ((lower <= mean) & (mean <= upper)).all()  # finite; of an RWKV-6 that was not trained exactly zero
