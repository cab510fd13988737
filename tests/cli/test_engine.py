"""The engine from the command line: what a resume may be given, what is skipped, and what befalls a run folder."""

import json
from pathlib import Path

import pytest
import torch

from everlong.cli.main import main
from everlong.records.files import load_record
from everlong.reports import _chart
from everlong.runs import Run
from everlong.training import loop
from everlong.workflows import _page

COMMON = ["--steps", "6", "--batch-size", "2", "--backend", "chunked", "--checkpoint-every", "2"]


@pytest.fixture
def command(model, text, tmp_path) -> list[str]:
    return ["train", "--start", str(model), "--data", str(text), *COMMON, "--output", str(tmp_path / "run")]


@pytest.fixture
def once_not_finite(monkeypatch):
    """The gradient norm of step 3 is infinite, however often that step is done."""
    measure = loop._Loop.measure

    def harmed(self, read, norm):
        loss, found, squares = measure(self, read, norm)
        return loss, float("inf") if int(self.optimizer.param_groups[0]["step_of_this_test"]) == 3 else found, squares

    step = loop._Loop.step

    def counted(self, number):
        self.optimizer.param_groups[0]["step_of_this_test"] = number
        return step(self, number)

    monkeypatch.setattr(loop._Loop, "measure", harmed)
    monkeypatch.setattr(loop._Loop, "step", counted)


def test_a_run_that_stopped_at_a_step_goes_on_with_the_setting_that_its_last_words_name(
    command, tmp_path, capsys, once_not_finite
):
    run = tmp_path / "run"
    assert main(command) == 3
    told = capsys.readouterr().err
    assert f"go on with `everlong train --resume {run} --on-nonfinite skip`" in told
    assert main(["train", "--resume", str(run)]) == 3
    assert main(["train", "--resume", str(run), "--on-nonfinite", "skip", "--checkpoint-every", "1"]) == 0
    printed = capsys.readouterr()
    assert f"{run} goes on with --on-nonfinite skip, was stop; --checkpoint-every 1, was 2" in printed.err
    assert "Trained 5 steps on 160 tokens" in printed.out
    assert "(1 of 6 were skipped: something in them was not finite)" in printed.out
    record = load_record(run / "records" / "training-finetuned.json")
    assert (record.skipped_steps, record.settings["on_nonfinite"], record.settings["checkpoint_every"]) == (
        1,
        "skip",
        1,
    )
    config = json.loads((run / "config.json").read_text())
    assert config["config"]["training"]["on_nonfinite"] == "stop"  # as it was begun
    assert config["resumed_with"] == {"on_nonfinite": "skip", "checkpoint_every": 1}


def test_what_a_resume_was_given_holds_for_the_next_one_too(command, tmp_path, capsys, once_not_finite):
    run = tmp_path / "run"
    assert main(command) == 3
    with Run.open(run) as opened:
        opened.resume_with({"on_nonfinite": "skip"})
    assert main(["train", "--resume", str(run), "--on-nonfinite", "skip"]) == 0
    assert "goes on with" not in capsys.readouterr().err  # nothing is new


@pytest.mark.parametrize(
    "given", [["--steps", "7"], ["--mixed-precision", "True"], ["--learning-rate", "0.1", "--on-nonfinite", "skip"]]
)
def test_what_is_trained_cannot_be_changed_at_a_resume(given, command, tmp_path, capsys):
    run = tmp_path / "run"
    with Run.create(run, "train", {}):
        pass
    before = (run / "config.json").read_text()
    assert main(["train", "--resume", str(run), *given]) == 2
    assert "give no others beside it, but for the engine's: --parallel, " in capsys.readouterr().err
    assert (run / "config.json").read_text() == before


def test_an_experiment_names_the_repair_that_is_to_be_given_the_setting(tmp_path, capsys):
    run = tmp_path / "run"
    with Run.create(run, "repair", {"bases": ["2"]}):
        pass
    assert main(["repair", "--resume", str(run), "--on-nonfinite", "skip"]) == 2
    told = capsys.readouterr().err
    assert f"give --on-nonfinite to the one that is to go on so, `everlong repair --resume {run}/repairs/NAME`" in told


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"training": {"steps": "two"}}, "config.training.steps"),
        ({"training": {"steps": 0}}, "steps is 0; it must be at least 1"),
        ({"training": 3}, "config.training"),
    ],
)
def test_settings_that_were_edited_into_nonsense_are_one_line(config, words, tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(json.dumps({"verb": "train", "config": config}))
    assert main(["train", "--resume", str(run)]) == 2
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("everlong: ")]
    assert len(told) == 1
    assert f"{run}/config.json holds settings that cannot be followed: " in told[0]
    assert words in told[0]


def test_a_disk_that_is_full_when_the_page_is_written_stops_the_run_and_keeps_what_was_measured(
    command, tmp_path, capsys, monkeypatch
):
    run = tmp_path / "run"

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(_page, "write_report", full)
        assert main(command) == 3
    told = capsys.readouterr().err
    assert f"the page cannot be written to {run} " in told
    assert f"write it with `everlong report {run}`" in told
    assert main(["report", str(run)]) == 0


def test_a_figure_that_ends_in_another_error_for_a_full_disk_is_told_alike(command, tmp_path, capsys, monkeypatch):
    """matplotlib's PDF file, which is closed though it could not be opened."""

    def closed(path: Path, *_: object, **__: object) -> None:
        try:
            raise OSError(28, "No space left on device")
        finally:
            path.no_such_attribute  # type: ignore[attr-defined]  # noqa: B018

    monkeypatch.setattr(_chart.Figure, "savefig", lambda self, path, **named: closed(Path(".")))
    assert main(command) == 3
    assert "the page cannot be written to" in capsys.readouterr().err


def test_an_error_of_ours_in_a_figure_is_not_taken_for_the_disks(command, monkeypatch):
    def wrong(*_: object, **__: object) -> None:
        raise AttributeError("ours")

    monkeypatch.setattr(_page, "write_report", wrong)
    with pytest.raises(AttributeError, match="ours"):
        main(command)


def test_a_power_loss_that_left_names_without_contents_costs_the_phase_and_nothing_else(command, tmp_path, capsys):
    """What a record looked like where nothing was flushed: resuming refused it for ever."""
    run = tmp_path / "run"
    assert main(command) == 0
    weights = (run / "models" / "finetuned" / "model.safetensors").read_bytes()
    (run / "records" / "training-finetuned.json").write_text("")
    (run / "models" / "finetuned" / "model.safetensors").write_bytes(b"")
    assert main(["train", "--resume", str(run)]) == 0
    assert "is set aside as training-finetuned.json.torn" in capsys.readouterr().err
    assert (run / "models" / "finetuned" / "model.safetensors").read_bytes() == weights
    assert torch.isfinite(torch.tensor(load_record(run / "records" / "training-finetuned.json").final_loss))
