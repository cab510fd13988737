"""The main job from the command line: it runs, it can be killed, and what comes out can be used."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from everlong.cli.main import main
from everlong.loading import load, open_model
from everlong.records.files import load_record
from tests.cli.conftest import QUICK, tiny_model

ARMS = ("zero", "state_passing")
STEPS = ["--steps", "8", "--batch-size", "4", "--reset-probability", "0.1"]


@pytest.fixture(scope="module")
def repaired(model, text, tmp_path_factory):
    """A whole repair: its run folder and what it printed."""
    folder = tmp_path_factory.mktemp("runs") / "repair"
    command = [sys.executable, "-m", "everlong", "repair", str(model), "--data", str(text), "--output", str(folder)]
    result = subprocess.run([*command, *QUICK, *STEPS], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return folder, result.stdout


def test_the_last_line_printed_is_the_page(repaired):
    folder, printed = repaired
    assert printed.strip().splitlines()[-1] == str(folder / "report.html")
    assert (folder / "report.html").stat().st_size > 10_000


def test_the_run_folder_holds_records_models_and_metrics(repaired):
    folder, _ = repaired
    names = {path.stem for path in (folder / "records").glob("*.json")}
    of_arms = {f"{what}-{arm}" for what in ("training", "diagnosis") for arm in ARMS}
    assert names == {"repair", "diagnosis-before"} | of_arms
    assert {path.name for path in (folder / "models").iterdir()} == set(ARMS)
    assert not list((folder / "checkpoints").rglob("*.safetensors"))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [(line["phase"], line["step"]) for line in lines] == [(arm, step) for arm in ARMS for step in range(8)]


def test_the_table_names_before_control_and_repair(repaired):
    printed = repaired[1].lower()
    assert "before" in printed
    assert "zero" in printed
    assert "state passing" in printed


def test_control_and_repair_train_on_one_budget_and_the_same_targets_are_read(repaired):
    folder, _ = repaired
    zero, passing = (load_record(folder / "records" / f"training-{arm}.json") for arm in ARMS)
    assert zero.scored_tokens == passing.scored_tokens == 8 * 4 * 16
    before, after = (
        load_record(folder / "records" / f"diagnosis-{label}.json") for label in ("before", "state_passing")
    )
    assert before.documents == after.documents
    assert (before.targets == after.targets).all()


def test_the_repaired_model_is_another_model_with_the_same_settings(repaired, model):
    folder, _ = repaired
    base, after = open_model(model), open_model(folder / "models" / "state_passing")
    assert (after.context, after.tokenizer, after.format) == (16, "bytes", "everlong")
    assert not torch.equal(base.model.lm_head.weight, after.model.lm_head.weight)


def test_a_finished_run_is_resumed_without_new_work(repaired, capsys):
    folder, _ = repaired
    before = {path: path.stat().st_mtime_ns for path in (folder / "records").iterdir()}
    assert main(["repair", "--resume", str(folder)]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in (folder / "records").iterdir()}
    assert capsys.readouterr().out.strip().endswith("report.html")


def test_the_report_is_remade_from_records_without_torch(repaired):
    folder, _ = repaired
    (folder / "report.html").unlink()
    code = "import sys; from everlong.cli.main import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code, "report", str(folder)], capture_output=True, text=True, check=True
    )
    assert result.stdout.splitlines()[-1] == "False"
    assert (folder / "report.html").is_file()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("when", ARMS)
def test_a_run_killed_in_training_goes_on_to_the_same_weights(model, text, tmp_path, repaired, how, when):
    folder = tmp_path / "killed"
    command = [sys.executable, "-m", "everlong", "repair"]
    start = [*command, str(model), "--data", str(text), "--output", str(folder), *QUICK, *STEPS]
    process = subprocess.Popen(start, stderr=subprocess.PIPE, text=True)
    _wait_for_step(folder / "metrics.jsonl", when, 2, process)
    process.send_signal(how)
    _, error = process.communicate(timeout=60)
    assert process.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    if how == signal.SIGINT:
        assert f"everlong repair --resume {folder}" in error
    subprocess.run([*command, "--resume", str(folder)], capture_output=True, check=True)
    for arm in ARMS:
        found, wanted = (load_file(run / "models" / arm / "model.safetensors") for run in (folder, repaired[0]))
        assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def _wait_for_step(metrics: Path, phase: str, step: int, process: subprocess.Popen) -> None:
    """Waits until the arm has written the step; where it is past it by then, it is killed there."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[1]
        if metrics.is_file():
            lines = metrics.read_text().splitlines()
            if any(f'"phase": "{phase}", "step": {step}' in line for line in lines):
                return
        time.sleep(0.002)
    raise AssertionError(f"{phase} never reached step {step}")


def test_all_methods_run_as_arms_of_one_budget(model, text, tmp_path):
    methods = ("random_noise", "fitted_noise", "tbtt", "state_passing")
    folder = tmp_path / "arms"
    arguments = ["repair", str(model), "--data", str(text), "--output", str(folder), "--methods", *methods]
    assert main([*arguments, *QUICK, *STEPS]) == 0
    trainings = {arm: load_record(folder / "records" / f"training-{arm}.json") for arm in ("zero", *methods)}
    recipe = trainings["zero"].settings
    for arm, training in trainings.items():
        assert training.scored_tokens == 8 * 4 * 16
        assert {name: recipe[name] for name in ("steps", "batch_size", "learning_rate", "context")} == {
            name: training.settings[name] for name in ("steps", "batch_size", "learning_rate", "context")
        }
        own = training.settings["intervention"]
        assert own["method"] == arm
        assert own.get("reset_probability", 0.1) == 0.1
        assert own["data_order"] == {"tbtt": "contiguous", "state_passing": "shuffled"}.get(arm, "any")
    firsts = [trainings[arm].first_loss for arm in ("zero", "fitted_noise", "state_passing")]
    assert len(set(firsts)) == 1  # one order of batches, and all three start from zero
    assert {path.name for path in (folder / "models").iterdir()} == set(trainings)


def test_arms_of_other_rows_keep_the_budget_and_say_how_far_their_gradient_goes(model, text, tmp_path, capsys):
    methods = (
        "tbtt,gradient_horizon_chunks=2",
        "longer_context,factor=2",
        "burn_in,longest_prefix=32",
        "state_passing,prefill_steps=2",
    )
    folder = tmp_path / "arms"
    arguments = ["repair", str(model), "--data", str(text), "--output", str(folder), "--methods", *methods]
    assert main([*arguments, *QUICK, *STEPS]) == 0
    trainings = {arm: load_record(folder / "records" / f"training-{arm}.json") for arm in ("zero", *methods)}
    assert {training.scored_tokens for training in trainings.values()} == {8 * 4 * 16}
    assert [training.context for training in trainings.values()] == [16, 32, 32, 16, 16]
    assert trainings["burn_in,longest_prefix=32"].read_tokens == 3 * 8 * 4 * 16
    assert trainings["state_passing,prefill_steps=2"].read_tokens == 10 * 4 * 16
    said = " ".join(capsys.readouterr().err.split())
    for arm, words in zip(
        trainings,
        (
            "4 rows of 16 tokens a step; the gradient's horizon is 16 tokens",
            "2 rows of 32 tokens a step; the gradient's horizon is 32 tokens",
            "2 rows of 32 tokens a step; the gradient's horizon is 32 tokens",
            "4 rows of 48 tokens, of which the first 32 are not scored, a step; the gradient's horizon is 16 tokens",
            "4 rows of 16 tokens a step; the gradient's horizon is 16 tokens; 2 steps are read ahead, without loss",
        ),
        strict=True,
    ):
        assert f"{arm}: {words}" in said


def test_a_transformers_model_comes_out_loadable_by_transformers(text, tmp_path):
    transformers = pytest.importorskip("transformers")
    from everlong.loading import save

    save(tiny_model(), tmp_path / "hf", format="transformers")
    arguments = ["repair", str(tmp_path / "hf"), "--data", str(text), "--context", "16", "--tokenizer", "bytes"]
    assert main([*arguments, "--output", str(tmp_path / "run"), *QUICK, *STEPS]) == 0
    folder = tmp_path / "run" / "models" / "state_passing"
    theirs = transformers.Mamba2ForCausalLM.from_pretrained(folder)
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        torch.testing.assert_close(theirs(tokens).logits, load(folder)(tokens).logits, atol=1e-5, rtol=1e-5)
