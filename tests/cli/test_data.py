"""Every verb with --data takes every kind of text; a run on a token file goes on after a kill like any other."""

import json
from pathlib import Path

import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from everlong.cli.main import main
from everlong.records.files import load_record
from tests.cli.conftest import QUICK

datasets = pytest.importorskip("datasets")

SHORT = ["--steps", "2", "--batch-size", "2"]


@pytest.fixture
def given(text, tmp_path, monkeypatch):
    """The session's text in a form of one's choice, as --data and its options."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "prepared")
    texts = [path.read_text() for path in sorted(text.iterdir())]
    rows = "".join(json.dumps({"body": each}) + "\n" for each in texts).encode()
    place = tmp_path / "data"
    place.mkdir()

    def make(kind: str) -> list[str]:
        column = ["--text-column", "body"]
        if kind == "parquet":
            parquet.write_table(pyarrow.table({"body": texts}), place / "a.parquet", row_group_size=7)
            return [str(place), *column]
        if kind == "stream":
            (place / "train.jsonl").write_bytes(rows)
            return [f"{place}::train", *column, "--stream", "True"]
        (place / f"a.{kind}").write_bytes(zstandard.compress(rows))
        return [str(place / f"a.{kind}"), *column]

    return make


def test_diagnose_measures_the_same_on_a_stream_as_on_files(given, model, text, tmp_path):
    arguments = ["--output", str(tmp_path / "run"), "--token-cache", str(tmp_path / "tokens"), *QUICK]
    assert main(["diagnose", str(model), "--data", *given("stream"), *arguments]) == 0
    assert main(["diagnose", str(model), "--data", str(text), "--output", str(tmp_path / "plain"), *QUICK]) == 0
    stream, plain = (load_record(tmp_path / run / "records" / "diagnosis-before.json") for run in ("run", "plain"))
    assert stream.excess.mean == plain.excess.mean


def test_repair_trains_and_holds_out_from_a_token_file(given, model, tmp_path, capsys):
    tokens, run = tmp_path / "tokens", tmp_path / "run"
    arguments = ["--output", str(run), "--token-cache", str(tokens), *SHORT, *QUICK]
    assert main(["repair", str(model), "--data", *given("parquet"), *arguments]) == 0
    capsys.readouterr()
    assert main(["repair", "--resume", str(run)]) == 0
    assert "20 documents from the token file" in capsys.readouterr().err
    assert load_record(run / "records" / "training-state_passing.json").scored_tokens == 2 * 2 * 16


@pytest.mark.parametrize("order", ["contiguous", "packed", "shuffled"])
def test_train_reads_in_every_data_order(order, given, tmp_path):
    arguments = ["--context", "256", *SHORT, "--backend", "chunked", "--output", str(tmp_path / "run")]
    model = ["mamba2", "--vocab-size", "256", "--d-model", "16", "--n-layer", "1", "--d-state", "8", "--headdim", "8"]
    assert main(["train", "--data", *given("jsonl.zst"), "--data-order", order, *arguments, *model]) == 0
    record = load_record(tmp_path / "run" / "records" / "training-scratch.json")
    assert record.read_tokens == 2 * 2 * 256
    assert (record.scored_tokens < record.read_tokens) == (order == "packed")


@pytest.mark.parametrize("verb", ["diagnose", "repair"])
def test_a_torn_file_is_refused_in_one_line_and_leaves_no_token_file(verb, given, model, tmp_path, capsys):
    arguments = given("jsonl.zst")
    torn = Path(arguments[0])
    torn.write_bytes(torn.read_bytes()[:-20])
    tokens = tmp_path / "tokens"
    command = [verb, str(model), "--data", *arguments, "--token-cache", str(tokens), *QUICK]
    assert main([*command, "--output", str(tmp_path / "run")]) == 2
    assert f"everlong: {torn} is cut off: its compressed stream has no end after line" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
    assert [path for path in tokens.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize("verb", ["diagnose", "repair", "train"])
def test_help_lists_what_data_may_be(verb, capsys):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    printed = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for word in (".jsonl (also .gz, .zst) or .parquet", "owner/name[:configuration[:split]]", "--token-cache"):
        assert word in printed
