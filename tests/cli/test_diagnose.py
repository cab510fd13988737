"""`everlong diagnose`: several models in one folder, resumed by model and measure, with a bound for tests."""

import subprocess
import sys

import pytest

from everlong.cli.main import main
from everlong.diagnostics.measures import MEASURES
from everlong.loading import save
from everlong.records.files import load_record
from tests.cli.conftest import QUICK, tiny_model

SMALL = ["--remembrance-starts", "6", "--permutations", "20", "--projections", "4", "--transplant-positions", "1"]


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    folder = tmp_path_factory.mktemp("repaired") / "models" / "state_passing"
    save(tiny_model(seed=1), folder, context=16, tokenizer="bytes")
    return folder


@pytest.fixture(scope="module")
def diagnosed(model, other, text, tmp_path_factory):
    """Two models under every measure: the run folder and what was printed."""
    folder = tmp_path_factory.mktemp("runs") / "diagnosis"
    command = [sys.executable, "-m", "everlong", "diagnose", str(model), str(other), "--data", str(text)]
    command += ["--output", str(folder), *QUICK, *SMALL, "--memory", "0.5"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return folder, result.stdout


def test_every_measure_of_every_model_is_recorded_told_and_drawn(diagnosed):
    folder, printed = diagnosed
    kinds = ("diagnosis", *MEASURES)
    names = {path.stem for path in (folder / "records").glob("*.json")}
    assert names == {f"{kind}-{label}" for kind in kinds for label in ("before", "state_passing")} | {"overview"}
    assert load_record(folder / "records" / "effective_remembrance-before.json").memory_gib == 0.5
    assert printed.strip().splitlines()[-1] == str(folder / "report.html")
    for words in ("tiny", "Used memory: ", "Transplant: ", "Effective remembrance: ", "Recentring: "):
        assert words in printed, words
    drawn = {path.stem for path in (folder / "figures").glob("*.csv")}
    assert drawn >= {"effective-remembrance", "state-std", "worst-heads", "used-memory", "transplant"}
    assert drawn >= {"decay-horizons", "predicted-break"}
    page = (folder / "report.html").read_text()
    assert "This run is unfinished" not in page
    assert "tiny" in page
    assert "State passing" in page


def test_a_run_goes_on_with_the_measures_that_are_missing(diagnosed, capsys):
    folder, _ = diagnosed
    gone = [folder / "records" / f"{name}.json" for name in ("transplant-state_passing", "overview")]
    for path in gone:
        path.unlink()
    kept = {path: path.stat().st_mtime_ns for path in (folder / "records").glob("*.json")}
    assert main(["diagnose", "--resume", str(folder)]) == 0
    assert all(path.is_file() for path in gone)
    assert kept == {path: path.stat().st_mtime_ns for path in kept}


def test_the_report_is_remade_without_torch_and_beside_the_paper_where_asked(diagnosed):
    folder, _ = diagnosed
    code = "import sys; from everlong.cli.main import main; main(sys.argv[1:]); print('torch' in sys.modules)"
    for flags in ([], ["--paper", "True"]):
        command = [sys.executable, "-c", code, "report", str(folder), *flags]
        result = subprocess.run(command, capture_output=True, text=True, check=True)
        assert result.stdout.splitlines()[-1] == "False"
        assert ("figure-beside-the-paper" in (folder / "report.html").read_text()) is bool(flags)


def test_a_bound_that_is_exceeded_is_exit_code_1_and_names_the_bucket(model, text, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["diagnose", str(model), "--data", str(text), *QUICK, "--measures", "none"]
    assert main([*arguments, "--output", "calm", "--fail-above", "50"]) == 0
    record = load_record(tmp_path / "calm" / "records" / "diagnosis-before.json")
    assert "Exceeds" not in capsys.readouterr().out
    highest = max(record.excess.lower[1:])
    if highest <= 0:
        pytest.skip("the tiny model does not harm")
    assert main([*arguments, "--output", "loud", "--fail-above", str(highest / 2)]) == 1
    where = record.excess.lower.index(highest)
    assert f"before at {record.excess.starts[where]:,}-{record.excess.stops[where]:,} tokens" in capsys.readouterr().out


def test_a_measure_that_the_documents_are_too_short_for_is_left_out_and_said(model, text, tmp_path, capsys):
    arguments = ["diagnose", str(model), "--data", str(text / "00.txt"), "--output", str(tmp_path / "run"), *QUICK]
    assert main([*arguments, "--measures", "mean_drift", "used_memory"]) == 0
    printed = capsys.readouterr().out
    assert "Warning: mean drift of before could not be measured: " in printed
    page = (tmp_path / "run" / "report.html").read_text()
    assert "used memory of before could not be measured" in page


def test_bad_input_in_the_last_model_is_found_before_any_work(model, text, tmp_path, capsys):
    arguments = ["diagnose", str(model), "nowhere/at/all", "--data", str(text), "--output", str(tmp_path / "run")]
    assert main([*arguments, *QUICK]) == 2
    assert "no model at 'nowhere/at/all'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
