"""`everlong evaluate`: several tasks and lengths in one run folder, gone on with by the cell."""

import signal
import subprocess
import sys

import pytest

from everlong.cli.main import main
from everlong.records.files import load_record
from everlong.tasks import evaluate as evaluation
from everlong.workflows import evaluate as workflow
from tests.tasks.conftest import write_babi

GRID = ["--lengths", "200", "1k", "--wording", "compact", "--depths", "0.1", "0.9", "--examples", "3", "--facts", "2"]


@pytest.fixture
def arguments(model, tmp_path):
    babi, book = tmp_path / "babi", tmp_path / "book.txt"
    write_babi(babi)
    book.write_text("It was a dull day in the town. " * 300)
    tasks = ["--task", "passkey", "recall", "copying", "babilong", "--babi", str(babi), "--books", str(book)]
    where = ["--questions", "qa1", "qa6", "--cache", str(tmp_path / "cache"), "--backend", "chunked"]
    return ["evaluate", str(model), *tasks, *GRID, *where, "--output", str(tmp_path / "run")]


def test_every_task_leaves_a_record_and_the_page_is_the_last_line(arguments, tmp_path, capsys):
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    run = tmp_path / "run"
    assert printed.strip().splitlines()[-1] == str(run / "report.html")
    cells, floors = {"passkey": 4, "recall": 2, "copying": 2, "babilong": 4}, 0
    for task, count in cells.items():
        record = load_record(run / "records" / f"evaluation-{task}.json")
        assert (record.task, record.context, record.tokenizer, len(record.cells)) == (task, 16, "bytes", count)
        assert {cell.parameters["length"] for cell in record.cells} == {200, 1024}
        assert all(cell.examples == 3 for cell in record.cells)
        assert task in printed
        floors += len(record.cells[0].floors)
    assert {path.name for path in (run / "figures").glob("*.svg")} == {"passkey.svg", "tasks.svg"}
    page = (run / "report.html").read_text(encoding="utf-8")
    assert "Passkey retrieval" in page
    for words in ("unfinished", "Nothing is measured", "Loss is not a task"):
        assert words not in page
    assert "tiny on passkey, recall, copying and babilong, lengths 200 and 1,024: above every floor" in page
    assert "floor: most frequent" in page
    assert "…" not in printed
    assert printed.count("floor:") == floors


def test_cells_that_are_given_twice_count_once_and_it_is_said(model, tmp_path, capsys):
    babi = tmp_path / "babi"
    write_babi(babi)
    (tmp_path / "book.txt").write_text("It was a dull day in the town. " * 300)
    tasks = ["--task", "passkey", "recall", "babilong", "--babi", str(babi), "--books", str(tmp_path / "book.txt")]
    grid = ["--lengths", "1k", "1024", "--wording", "compact", "--depths", ".5", "0.50", ".9", "--facts", "2", "2"]
    where = ["--questions", "qa1", "qa1", "--examples", "2", "--cache", str(tmp_path / "cache"), "--backend", "chunked"]
    run = tmp_path / "run"
    assert main(["evaluate", str(model), *tasks, *grid, *where, "--output", str(run)]) == 0
    said = capsys.readouterr().err
    for task, count, again in (("passkey", 2, "4 of 6"), ("recall", 1, "3 of 4"), ("babilong", 1, "3 of 4")):
        cells = load_record(run / "records" / f"evaluation-{task}.json").cells
        assert len(cells) == len({repr(cell.parameters) for cell in cells}) == count
        assert f"{task}: {again} cells are given again (1k is 1024) and count once." in said


def test_a_killed_run_goes_on_with_the_cell_after_the_last(arguments, tmp_path, monkeypatch):
    scored, score = [], evaluation.evaluate

    def killed(model, task, parameters, examples, **settings):
        if len(scored) == 5:
            raise KeyboardInterrupt
        scored.append(parameters)
        return score(model, task, parameters, examples, **settings)

    monkeypatch.setattr(workflow, "score", killed)
    assert main(arguments) == 130
    assert len(scored) == 5
    before = {path: path.read_bytes() for path in (tmp_path / "run" / "records").iterdir()}
    monkeypatch.setattr(
        workflow, "score", lambda *given, **settings: scored.append(given[2]) or score(*given, **settings)
    )
    assert main(["evaluate", "--resume", str(tmp_path / "run")]) == 0
    assert len(scored) == 12
    assert all(path.read_bytes() == content for path, content in before.items())


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--task", "passkey", "--lengths", "100"], "passkey does not fit into a length of 100"),
        (["--task", "prayer"], "unknown task 'prayer'; known: babilong, copying, passkey, recall"),
        (["--task", "babilong"], "--babi DIR"),
        (["--lengths", "4q"], "'4q' is no length"),
        (["--examples", "0"], "--examples 0"),
        (["--depths", "2"], "--depths 2.0"),
        (["--depths"], "--depths is empty"),
        (["--lengths", "99999999999999999999"], "out of range; give at most 1024m"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_folder(model, tmp_path, capsys, monkeypatch, flags, words):
    monkeypatch.chdir(tmp_path)
    assert main(["evaluate", str(model), *flags, "--backend", "chunked"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


KILLED = """
import os, signal, sys
from everlong.cli.main import main
from everlong.workflows import evaluate as workflow

score, done = workflow.score, []

def killed(*given, **settings):
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    done.append(given)
    return score(*given, **settings)

workflow.score = killed
main(sys.argv[1:])
"""


def test_a_run_that_was_killed_outright_keeps_its_cells_and_goes_on(arguments, tmp_path, monkeypatch):
    done = subprocess.run([sys.executable, "-c", KILLED, *arguments], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    run = tmp_path / "run"
    before = {path: path.read_bytes() for path in (run / "records").iterdir() if path.name.startswith("cell-")}
    assert len(before) >= 3
    scored, score = [], evaluation.evaluate
    monkeypatch.setattr(
        workflow, "score", lambda *given, **settings: scored.append(given[2]) or score(*given, **settings)
    )
    assert main(["evaluate", "--resume", str(run)]) == 0
    assert len(scored) == 12 - 3
    assert all(path.read_bytes() == content for path, content in before.items())
    assert {path.name for path in (run / "records").iterdir()} >= {
        f"evaluation-{task}.json" for task in ("passkey", "recall", "copying", "babilong")
    }
