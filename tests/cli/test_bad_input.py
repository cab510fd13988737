"""Bad input gets one line that names the value and the way out, exit code 2, and leaves nothing behind."""

import json
import shutil

import pytest

from everlong.cli.main import main
from tests.cli.conftest import QUICK


@pytest.fixture
def refused(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> str:
        before = sorted(tmp_path.rglob("*"))
        assert main(list(arguments)) == 2
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("everlong: ")]
        assert len(lines) == 1
        assert [p for p in sorted(tmp_path.rglob("*")) if p not in before and p.name != "runs"] == []
        return lines[0]

    return run


def test_a_missing_model_is_named(refused, text):
    assert "no model at 'nowhere/at/all'" in refused("diagnose", "nowhere/at/all", "--data", str(text), *QUICK)


def test_a_half_written_model_is_named(refused, model, text, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert str(weights) in refused("repair", str(broken), "--data", str(text), *QUICK)


def test_a_config_that_contradicts_its_weights_names_both_numbers(refused, model, text, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    config = json.loads((broken / "config.json").read_text())
    config["model"]["n_layer"] = 3
    (broken / "config.json").write_text(json.dumps(config))
    line = refused("diagnose", str(broken), "--data", str(text), *QUICK)
    assert "3" in line
    assert "2" in line
    assert "n_layer" in line


def test_an_unknown_architecture_lists_the_known_ones(refused, model, text, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(model, other)
    config = json.loads((other / "config.json").read_text())
    config["architecture"] = "transformer"
    (other / "config.json").write_text(json.dumps(config))
    line = refused("diagnose", str(other), "--data", str(text), *QUICK)
    assert "transformer" in line
    assert "mamba2" in line


def test_a_training_length_that_nothing_says_asks_for_the_flag(refused, text, tmp_path):
    from everlong.loading import save
    from tests.cli.conftest import tiny_model

    save(tiny_model(), tmp_path / "plain", tokenizer="bytes")
    assert "--context N" in refused("diagnose", str(tmp_path / "plain"), "--data", str(text), *QUICK)


def test_a_tokenizer_that_nothing_says_asks_for_the_flag(refused, text, tmp_path):
    from everlong.loading import save
    from tests.cli.conftest import tiny_model

    save(tiny_model(), tmp_path / "plain", context=16)
    assert "--tokenizer" in refused("diagnose", str(tmp_path / "plain"), "--data", str(text), *QUICK)


def test_text_that_is_not_there_is_named(refused, model):
    assert "no-such-text" in refused("diagnose", str(model), "--data", "no-such-text", *QUICK)


def test_empty_text_is_named(refused, model, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    assert "empty" in refused("diagnose", str(model), "--data", str(tmp_path / "empty.txt"), *QUICK)


def test_text_that_is_not_utf8_is_named_with_the_place(refused, model, tmp_path):
    (tmp_path / "latin.txt").write_bytes("naïve ".encode("latin-1") * 500)
    line = refused("diagnose", str(model), "--data", str(tmp_path / "latin.txt"), *QUICK)
    assert "latin.txt" in line
    assert "UTF-8" in line


def test_text_shorter_than_one_context_names_both_lengths(refused, model, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("short")
    line = refused("diagnose", str(model), "--data", str(tmp_path / "a.txt"), str(tmp_path / "b.txt"), *QUICK)
    assert "16" in line
    assert "5" in line


def test_token_ids_past_the_vocabulary_are_named(refused, text, tmp_path):
    import torch

    from everlong.loading import save
    from everlong.models.architectures import create

    torch.manual_seed(0)
    narrow = create("mamba2", vocab_size=64, d_model=16, n_layer=1, d_state=8, headdim=8)
    save(narrow, tmp_path / "narrow", context=16, tokenizer="bytes")
    assert "the model knows 0 to 63" in refused("diagnose", str(tmp_path / "narrow"), "--data", str(text), *QUICK)


def test_an_output_that_exists_is_not_written_over(refused, model, text, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "precious").write_text("data")
    line = refused("diagnose", str(model), "--data", str(text), "--output", str(tmp_path / "mine"), *QUICK)
    assert "exists" in line
    assert (tmp_path / "mine" / "precious").read_text() == "data"


def test_an_unknown_method_lists_the_known_ones(refused, model, text):
    line = refused("repair", str(model), "--data", str(text), "--methods", "prayer", *QUICK)
    assert "prayer" in line
    assert "state_passing" in line


def test_more_rows_than_documents_are_refused_where_rows_read_whole_documents(refused, model, text):
    line = refused("repair", str(model), "--data", str(text), "--methods", "tbtt", "--batch-size", "64", *QUICK)
    assert "64 rows would read 12 documents" in line
    assert "--batch-size" in line


def test_an_unknown_backend_lists_the_known_ones(refused, model, text):
    line = refused("diagnose", str(model), "--data", str(text), "--backend", "abacus")
    assert "abacus" in line
    assert "chunked" in line


def test_resume_beside_other_settings_is_refused(refused, tmp_path):
    assert "give no others" in refused("repair", "--resume", str(tmp_path), "--steps", "5")


def test_a_folder_that_is_no_run_is_named(refused, tmp_path):
    assert "no run folder" in refused("report", str(tmp_path))


def test_a_length_within_the_training_length_is_refused(refused, model, text):
    line = refused("diagnose", str(model), "--data", str(text), "--max-length", "16", "--backend", "chunked")
    assert "--max-length 16" in line


def test_too_few_documents_are_a_warning_and_undecided(model, text, tmp_path, capsys):
    arguments = ["diagnose", str(model), "--data", str(text / "00.txt"), str(text / "01.txt"), *QUICK]
    assert main([*arguments, "--output", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr()
    assert "Warning: only 2 held-out documents" in printed.out
    assert "Undecided" in printed.out


def test_held_out_text_alone_leaves_nothing_to_train_on(refused, model, text):
    assert "without --data" in refused("repair", str(model), "--held-out", str(text), *QUICK)


@pytest.mark.parametrize("flag", ["--tolerance", "--break-growth", "--memory", "--confidence", "--fail-above"])
def test_a_bound_that_is_no_number_is_named(refused, flag):
    assert " nan" in refused("diagnose", flag, "nan")
