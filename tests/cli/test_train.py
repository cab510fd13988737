"""Training from scratch from the command line, for every architecture."""

import pytest

from everlong.cli.main import main
from everlong.loading import open_model
from everlong.models.architectures import ARCHITECTURES
from everlong.records.files import load_record
from tests.models.tiny import TINY


def flags(settings: dict) -> list[str]:
    """A configuration's fields as flags."""
    given = []
    for name, value in ({"vocab_size": 256} | settings | {"vocab_size": 256, "pad_vocab_size_multiple": 1}).items():
        values = value if isinstance(value, tuple) else (value,)
        given += ["--" + name.replace("_", "-"), *map(str, values)]
    return given


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_is_trained_saved_and_resumed(architecture, text, tmp_path, capsys):
    run = tmp_path / "run"
    common = ["--context", "16", "--steps", "3", "--batch-size", "2", "--data", str(text), "--backend", "chunked"]
    arguments = ["train", *common, "--output", str(run), architecture, *flags(TINY[architecture])]
    assert main(arguments) == 0
    assert capsys.readouterr().out.strip().splitlines()[-1] == str(run / "report.html")
    page = (run / "report.html").read_text(encoding="utf-8")
    assert f"Trained from scratch: {architecture}, on {text};" in page
    opened = open_model(run / "models" / "scratch")
    assert opened.model.config.architecture == architecture
    assert (opened.context, opened.tokenizer) == (16, "bytes")
    assert load_record(run / "records" / "training-scratch.json").steps == 3
    assert main(["train", "--resume", str(run)]) == 0


SHORT = ["--steps", "3", "--batch-size", "2", "--backend", "chunked"]


def record_of(run):
    return load_record(run / "records" / "training-finetuned.json")


@pytest.mark.parametrize("method", ["zero", "fitted_noise", "state_passing"])
def test_a_model_is_fine_tuned_on_a_task_with_the_loss_on_the_answers(method, model, tmp_path):
    run = tmp_path / "run"
    task = ["--task", "passkey", "--wording", "compact", "--context", "60", "--method", method]
    assert main(["train", "--start", str(model), *task, *SHORT, "--output", str(run)]) == 0
    record = record_of(run)
    assert (record.method, record.context) == (method, 60)
    assert record.read_tokens == 3 * 2 * 60
    assert record.scored_tokens == 3 * 2 * len(" 12345.")
    tuned = open_model(run / "models" / "finetuned")
    assert (tuned.context, tuned.tokenizer, tuned.format) == (60, "bytes", "everlong")
    before = open_model(model).model.state_dict()
    assert any(not tensor.equal(before[name]) for name, tensor in tuned.model.state_dict().items())
    assert main(["train", "--resume", str(run)]) == 0


def test_longer_rows_of_a_task_answer_as_many_questions(model, tmp_path):
    """One budget in scored tokens: a row of a task is an example, however long it is."""
    run = tmp_path / "run"
    task = ["--task", "passkey", "--wording", "compact", "--context", "60", "--method", "longer_context,factor=2"]
    assert main(["train", "--start", str(model), *task, *SHORT, "--output", str(run)]) == 0
    record = record_of(run)
    assert record.settings["intervention"]["factor"] == 2
    assert record.read_tokens == 3 * 2 * 120
    assert record.scored_tokens == 3 * 2 * len(" 12345.")


def test_a_method_is_set_as_an_arm_is_and_a_prefix_is_read_beside_the_budget(model, tmp_path):
    task = ["train", "--start", str(model), "--task", "passkey", "--wording", "compact", "--context", "60", *SHORT]
    assert main([*task, "--method", "random_noise,scale=0.3", "--output", str(tmp_path / "noise")]) == 0
    assert record_of(tmp_path / "noise").settings["intervention"]["scale"] == 0.3
    assert main([*task, "--method", "burn_in,longest_prefix=16", "--output", str(tmp_path / "burn")]) == 0
    burnt = record_of(tmp_path / "burn")
    assert (burnt.method, burnt.context, burnt.read_tokens) == ("burn_in", 60, 3 * 2 * 76)
    assert burnt.scored_tokens == 3 * 2 * len(" 12345.")


def test_copying_is_learned_from_scratch_with_rows_of_other_lengths_in_every_batch(tmp_path):
    run = tmp_path / "run"
    task = ["--task", "copying", "--copy-shortest", "2", "--copy-longest", "6", "--context", "16"]
    method = ["--method", "state_passing", "--output", str(run)]
    assert main(["train", *task, *SHORT, *method, "mamba2", *flags(TINY["mamba2"])]) == 0
    record = load_record(run / "records" / "training-scratch.json")
    lengths = record.read_tokens / 2
    assert 3 * 6 <= lengths <= 3 * 14
    assert record.scored_tokens == record.read_tokens // 2


def test_text_is_trained_on_in_the_order_that_the_method_needs(model, text, tmp_path):
    run = tmp_path / "run"
    data = ["--data", str(text), "--method", "tbtt", "--output", str(run)]
    assert main(["train", "--start", str(model), *data, *SHORT]) == 0
    assert record_of(run).context == 16
    assert record_of(run).settings["data_order"] == "contiguous"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--start", "MODEL", "--task", "passkey"], "does not fit into a length of 17"),
        (["--start", "MODEL", "gla", "--vocab-size", "256"], "give none beside it"),
        (["--start", "MODEL", "--method", "prayer"], "unknown method 'prayer' in --method;"),
        (["--start", "MODEL", "--method", "zero,hope=1"], "'hope=1' in --method zero,hope=1 is no new setting=value"),
        (
            ["--start", "MODEL", "--task", "passkey", "--method", "tbtt"],
            "each example of --task passkey is a text of its",
        ),
        (["--task", "prayer"], "unknown task 'prayer'"),
    ],
)
def test_what_does_not_fit_is_one_line(model, tmp_path, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *[str(model) if argument == "MODEL" else argument for argument in arguments]]) == 2
    error = [line for line in capsys.readouterr().err.splitlines() if line.startswith("everlong: ")]
    assert len(error) == 1
    assert words in error[0]
