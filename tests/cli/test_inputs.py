"""Text and models: what training leaves out is said, what has changed since a run was begun stops its resume."""

import json
import shutil

import pytest
import torch

from everlong.cli.main import main
from everlong.loading import save
from everlong.records.files import load_record
from everlong.training.loop import _Loop
from tests.cli.conftest import QUICK, tiny_model

SHORT = ["--steps", "4", "--batch-size", "2", "--backend", "chunked", "--checkpoint-every", "2"]


@pytest.fixture
def own(model, text, tmp_path):
    """A model and a folder of text that a test may change."""
    shutil.copytree(model, tmp_path / "model")
    shutil.copytree(text, tmp_path / "text")
    return tmp_path


def interrupted(monkeypatch, arguments: list[str], *, phase: str, step: int) -> None:
    """Runs a verb until it is interrupted before a step of a phase."""
    work = _Loop.step

    def interrupt(self: _Loop, now: int):
        if (self.phase, now) == (phase, step):
            raise KeyboardInterrupt
        return work(self, now)

    with monkeypatch.context() as patched:
        patched.setattr(_Loop, "step", interrupt)
        assert main(arguments) == 130


def change(folder, what: str) -> None:
    if what == "model":
        shutil.rmtree(folder / "model")
        save(tiny_model(1), folder / "model", context=16, tokenizer="bytes")
        return
    for file in sorted((folder / "text").glob("*.txt")):
        file.write_text(file.read_text()[::-1])


def error_of(capsys, arguments: list[str]) -> str:
    capsys.readouterr()
    assert main(arguments) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("everlong: ")]
    return line


@pytest.mark.parametrize(("what", "named"), [("text", "training text"), ("model", "start model")])
@pytest.mark.parametrize("step", [1, 3])
def test_train_is_not_resumed_on_what_has_changed(own, monkeypatch, capsys, what, named, step):
    """Before the first checkpoint, too."""
    run = own / "run"
    arguments = ["train", "--start", str(own / "model"), "--data", str(own / "text"), "--output", str(run), *SHORT]
    interrupted(monkeypatch, arguments, phase="finetuned", step=step)
    kept = {name: (own / name) for name in ("model", "text")}
    shutil.copytree(kept[what], own / "kept")
    change(own, what)
    metrics = (run / "metrics.jsonl").read_bytes()
    line = error_of(capsys, ["train", "--resume", str(run)])
    assert f"the {named} has changed since {run} was begun (SHA-256 " in line
    assert (run / "metrics.jsonl").read_bytes() == metrics
    shutil.rmtree(kept[what])
    (own / "kept").rename(kept[what])
    assert main(["train", "--resume", str(run)]) == 0
    inputs = load_record(run / "records" / "training-finetuned.json").settings["inputs"]
    assert inputs == json.loads((run / "inputs.json").read_text())


@pytest.mark.parametrize(
    ("what", "named"), [("text", "training text"), ("model", "start model"), ("held-out", "held out text")]
)
def test_repair_is_not_resumed_on_what_has_changed_though_an_arm_is_finished(own, monkeypatch, capsys, what, named):
    (own / "held-out").mkdir()
    for file in sorted((own / "text").glob("0*.txt")):
        file.rename(own / "held-out" / file.name)
    data = ["--data", str(own / "text"), "--held-out", str(own / "held-out")]
    run = own / "run"
    arguments = ["repair", str(own / "model"), *data, "--output", str(run), *QUICK, "--steps", "2", "--batch-size", "2"]
    interrupted(monkeypatch, arguments, phase="state_passing", step=0)
    if what == "held-out":
        (own / "held-out" / "00.txt").write_text("another text " * 60)
    else:
        change(own, what)
    line = error_of(capsys, ["repair", "--resume", str(run)])
    assert f"the {named} has changed since {run} was begun" in line


@pytest.mark.parametrize(("what", "named"), [("text", "held out text"), ("model", "model before")])
def test_diagnose_is_not_resumed_on_what_has_changed(own, capsys, what, named):
    run = own / "run"
    arguments = ["diagnose", str(own / "model"), "--data", str(own / "text"), "--measures", "none", *QUICK]
    assert main([*arguments, "--output", str(run)]) == 0
    change(own, what)
    line = error_of(capsys, ["diagnose", "--resume", str(run)])
    assert f"the {named} has changed since {run} was begun" in line


def test_a_run_is_resumed_from_another_working_folder(own, monkeypatch):
    """The names of documents change with it, the text does not."""
    run = own / "run"
    monkeypatch.chdir(own)
    arguments = ["train", "--start", str(own / "model"), "--data", str(own / "text"), "--output", str(run), *SHORT]
    interrupted(monkeypatch, arguments, phase="finetuned", step=3)
    (own / "other").mkdir()
    monkeypatch.chdir(own / "other")
    assert main(["train", "--resume", str(run)]) == 0


def test_a_run_from_before_its_inputs_were_noted_down_goes_on(own, monkeypatch):
    run = own / "run"
    arguments = ["train", "--start", str(own / "model"), "--data", str(own / "text"), "--output", str(run), *SHORT]
    interrupted(monkeypatch, arguments, phase="finetuned", step=1)
    (run / "inputs.json").unlink()
    assert main(["train", "--resume", str(run)]) == 0
    assert (run / "inputs.json").is_file()


def short_documents(folder) -> str:
    """Forty documents of 12 bytes and six of 600, as lines."""
    texts = ["twelve bytes"] * 40 + [f"{index} is a text of some length, " * 22 for index in range(6)]
    path = folder / "short.jsonl"
    path.write_text("".join(json.dumps({"text": text[:600]}) + "\n" for text in texts))
    return str(path)


def test_documents_and_tokens_that_no_row_reads_are_said_and_recorded(own, capsys):
    data = ["train", "--start", str(own / "model"), "--data", short_documents(own), "--held-out", str(own / "text")]
    assert main([*data, "--output", str(own / "run"), *SHORT]) == 0
    record = load_record(own / "run" / "records" / "training-finetuned.json")
    ends = 6 * (600 - 37 * 16 - 1)
    assert (record.documents_left_out, record.tokens_left_out) == (40, 40 * 12 + ends)
    said = " ".join(capsys.readouterr().err.split())
    assert "40 of 46 documents are too short to be read in rows of 16 tokens and are left out; " in said
    assert f"that is {40 * 12 + ends} of 4,080 tokens (12.8%): --data-order packed reads them" in said
    assert main([*data, "--output", str(own / "packed"), *SHORT, "--data-order", "packed"]) == 0
    packed = load_record(own / "packed" / "records" / "training-finetuned.json")
    assert (packed.documents_left_out, packed.tokens_left_out) == (0, 0)
    assert "left out" not in capsys.readouterr().err


def test_each_arm_of_a_repair_says_and_records_what_its_rows_leave_out(own, capsys):
    data = ["--data", short_documents(own), "--held-out", str(own / "text"), "--methods", "longer_context,factor=16"]
    steps = ["--steps", "2", "--batch-size", "16"]
    assert main(["repair", str(own / "model"), *data, "--output", str(own / "run"), *QUICK, *steps]) == 0
    records = own / "run" / "records"
    trainings = [load_record(records / f"training-{arm}.json") for arm in ("zero", "longer_context,factor=16")]
    assert [training.documents_left_out for training in trainings] == [40, 40]
    assert [training.tokens_left_out for training in trainings] == [480 + 6 * 7, 480 + 6 * (600 - 2 * 256 - 1)]
    said = " ".join(capsys.readouterr().err.split())
    assert "zero: 40 of 46 documents are too short to be read in rows of 16 tokens and are left out;" in said
    assert "longer_context,factor=16: 40 of 46 documents are too short to be read in rows of 256 tokens" in said


def test_train_says_how_far_its_gradient_goes(own, capsys):
    data = ["train", "--start", str(own / "model"), "--data", str(own / "text"), *SHORT]
    assert main([*data, "--method", "tbtt,gradient_horizon_chunks=2", "--output", str(own / "run")]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "1 rows of 32 tokens a step; the gradient's horizon is 32 tokens" in said
    task = ["--task", "passkey", "--wording", "compact", "--context", "60"]
    assert main(["train", "--start", str(own / "model"), *task, *SHORT, "--output", str(own / "task")]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "2 rows of at most 60 tokens a step; the gradient's horizon is 60 tokens" in said
    assert load_record(own / "task" / "records" / "training-finetuned.json").tokens_left_out is None


LATE = [
    (["--gradient-accumulation", "3"], "--batch-size 4 cannot be shared evenly"),
    (
        ["--gradient-accumulation", "4", "--methods", "longer_context,factor=2"],
        "--batch-size 2 cannot be shared evenly",
    ),
    (["--mixed-precision", "True", "--dtype", "bfloat16"], "--mixed-precision is for float32 models; this one is bf"),
    (["--trackers", "tensorboard"], "--trackers tensorboard is not installed here"),
]


@pytest.mark.parametrize(("flags", "words"), LATE)
def test_what_an_arm_cannot_do_is_refused_before_any_work(own, monkeypatch, capsys, flags, words):
    """The model is not even measured; an experiment trains no base first."""
    if "--trackers" in flags:
        monkeypatch.setattr("everlong.training._trackers.find_spec", lambda name: None)
    run, data = own / "run", ["--data", str(own / "text"), "--held-out", str(own / "text" / "00.txt")]
    for place in ([str(own / "model")], ["--bases", "1"]):
        arguments = ["repair", *place, *data, "--output", str(run), *QUICK, "--steps", "2", "--batch-size", "4", *flags]
        assert words in error_of(capsys, arguments)
        assert not run.exists()


def test_the_digest_of_a_model_knows_names_shapes_and_values():
    from everlong.workflows._inputs import model_digest

    model = tiny_model()
    before = model_digest(model)
    assert before == model_digest(tiny_model()) != model_digest(tiny_model(1))
    with torch.no_grad():
        model.lm_head.weight[3, 5] += 1e-4
    assert model_digest(model) != before
    assert model_digest(tiny_model().to(torch.bfloat16)) != before
