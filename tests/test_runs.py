"""The run folder: one process at a time, nothing written over, nothing half written, and it goes on after a kill."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass

import pytest

from everlong import runs
from everlong.errors import EverlongError, RunStopped
from everlong.records.training import Exposure
from everlong.runs import Run, environment, write_bytes, write_json
from tests.flushed import Disk

EXPOSURE = Exposure(ages=(1,), tokens=(64.0,), scored_tokens=64)


@dataclass(frozen=True)
class Config:
    """Stands for a verb's configuration."""

    model: str = "bundled"
    lengths: tuple[int, ...] = (64, 128)


@pytest.fixture
def run(tmp_path):
    with Run.create(tmp_path / "run", "repair", asdict(Config())) as run:
        yield run


def files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", f"import os, sys; from everlong.runs import Run\n{code}", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_run_is_opened_with_what_it_was_created_with(tmp_path):
    Run.create(tmp_path / "run", "repair", asdict(Config(model="mine"))).close()
    with Run.open(tmp_path / "run", "repair") as run:
        assert (run.verb, run.config) == ("repair", {"model": "mine", "lengths": [64, 128]})
    written = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert written["python"] == sys.version.split()[0]
    assert set(written["packages"]) >= {"everlong", "torch", "numpy"}


def test_the_default_folder_names_the_verb(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Run.create(None, "train", asdict(Config())) as run:
        assert run.path.parent.name == "runs"
        assert run.path.name.startswith("train-")


def test_an_existing_folder_is_refused_and_left_as_it_was(tmp_path):
    Run.create(tmp_path / "run", "repair", asdict(Config())).close()
    before = files(tmp_path)
    with pytest.raises(EverlongError, match=r"exists; nothing is written over: .* `everlong train --resume .*run`"):
        Run.create(tmp_path / "run", "train", asdict(Config(model="other")))
    assert files(tmp_path) == before


def test_a_folder_that_cannot_be_made_is_an_error_that_says_why(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EverlongError, match="cannot be made: Not a directory"):
        Run.create(tmp_path / "file" / "run", "repair", asdict(Config()))


def test_a_second_process_cannot_open_a_run_that_is_held(run):
    second = python("Run.open(sys.argv[1])", run.path)
    assert second.returncode != 0
    assert "is in use by another process" in second.stderr


def test_a_second_process_can_open_a_run_that_is_closed(run):
    run.close()
    assert python("Run.open(sys.argv[1])", run.path).returncode == 0


def test_a_process_that_dies_lets_go_of_its_run(tmp_path):
    died = python("run = Run.create(sys.argv[1], 'repair', {}); os._exit(9)", tmp_path / "run")
    assert died.returncode == 9
    Run.open(tmp_path / "run", "repair").close()


def test_resuming_another_verb_s_run_is_refused(run):
    run.close()
    with pytest.raises(EverlongError, match="is a run of `everlong repair`, not of `everlong train`"):
        Run.open(run.path, "train")
    Run.open(run.path).close()  # a report is made of any verb's run


@pytest.mark.parametrize(
    "content", [None, "", '{"verb": "rep', '{"verb": "repair"}', "[]", '{"verb": "repair", "config": [1]}']
)
def test_what_is_no_run_folder_is_said_to_be_none(content, tmp_path):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(EverlongError, match=r"is no run folder: it has no readable config\.json"):
        Run.open(tmp_path)


def test_a_finished_phase_is_read_and_not_worked_again(run):
    worked = []

    def work():
        worked.append(1)
        return EXPOSURE

    assert not run.has("exposure")
    assert run.phase("exposure", work) == EXPOSURE
    assert run.has("exposure")
    assert run.phase("exposure", work) == EXPOSURE
    assert len(worked) == 1


def test_a_phase_that_fails_is_not_finished(run):
    with pytest.raises(ZeroDivisionError):
        run.phase("exposure", lambda: 1 // 0)  # pyright: ignore[reportArgumentType]  (never returns)
    assert not run.has("exposure")


def test_rewind_takes_out_torn_and_later_lines_of_one_phase_only(run):
    kept = [
        {"phase": "zero", "step": 0, "loss": 2.0},
        {"phase": "zero", "step": 1, "loss": 1.9},
        {"phase": "state_passing", "step": 0, "loss": 2.1},
        {"phase": "state_passing", "step": 1, "loss": 2.0},
        {"phase": "zero", "step": 2, "loss": 1.8},
    ]
    for line in (*kept, {"phase": "state_passing", "step": 2}, {"phase": "state_passing", "step": 3}):
        run.log(line)
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"phase": "state_passing", "st')
    run.rewind("state_passing", 2)
    run.log({"phase": "state_passing", "step": 2, "loss": 1.7})
    lines = [json.loads(line) for line in (run.path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [*kept, {"phase": "state_passing", "step": 2, "loss": 1.7}]


def test_rewind_before_the_first_line_is_no_error(run):
    run.rewind("zero", 0)
    assert not (run.path / "metrics.jsonl").exists()


def test_an_atomic_write_leaves_the_file_and_nothing_else(tmp_path):
    write_bytes(tmp_path / "deep" / "file.bin", b"one")
    write_bytes(tmp_path / "deep" / "file.bin", b"two")
    write_json(tmp_path / "deep" / "file.json", {"a": [1, None]})
    assert files(tmp_path / "deep") == {"file.bin": b"two", "file.json": b'{\n  "a": [\n    1,\n    null\n  ]\n}\n'}


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(step, tmp_path, monkeypatch):
    write_bytes(tmp_path / "file", b"old")

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(tmp_path / "file", b"new")
    assert files(tmp_path) == {"file": b"old"}


def test_the_environment_is_told_without_importing_the_packages():
    code = "from everlong.runs import environment; environment(); sys.exit('torch' in sys.modules)"
    assert python(code).returncode == 0
    assert environment()["packages"]["torch"] != "not installed"


class Follower:
    """A process that is not the first."""

    is_main = False

    def together(self, work):
        return work()

    def on_main(self, work):
        """The first does it, elsewhere."""

    def share(self, text):
        return text


def test_a_process_that_is_not_the_first_reads_and_writes_nothing(tmp_path):
    with Run.create(tmp_path / "run", "train", {}) as first:
        follower = Run.open(tmp_path / "run", crew=Follower())  # the first holds the folder meanwhile
        first.log({"phase": "a", "step": 0})
        follower.log({"phase": "a", "step": 1})
        follower.rewind("a", 0)
        follower.settle()
        first.settle()
    assert (tmp_path / "run" / "metrics.jsonl").read_text() == '{"phase": "a", "step": 0}\n'


def test_a_folder_without_its_configuration_is_never_seen(tmp_path, monkeypatch):
    def kill(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(runs, "write_json", kill)
    with pytest.raises(KeyboardInterrupt):
        Run.create(tmp_path / "run", "train", {})
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", ["", '{"record": "Exposure", "ages": [1', '{"record": "Diary"}'])
def test_a_record_that_is_torn_is_set_aside_and_its_phase_done_again(run, content):
    """As a machine leaves it that lost its power while nothing was flushed."""
    said, path = [], run.path / "records" / "exposure.json"
    run.say = said.append
    run.phase("exposure", lambda: EXPOSURE)
    path.write_text(content)
    assert run.phase("exposure", lambda: EXPOSURE) == EXPOSURE
    assert run.load("exposure") == EXPOSURE
    assert path.with_name("exposure.json.torn").read_text() == content
    assert len(said) == 1
    assert "exposure.json is no readable record" in said[0]
    assert "is set aside as exposure.json.torn, and its phase is done again" in said[0]


def test_a_record_that_the_disk_does_not_give_stops_the_run_and_is_left(run, monkeypatch):
    run.phase("exposure", lambda: EXPOSURE)

    def broken(path):
        raise RunStopped(f"{path} cannot be read from the disk")

    monkeypatch.setattr(runs, "load_record", broken)
    with pytest.raises(RunStopped, match="cannot be read from the disk"):
        run.phase("exposure", lambda: pytest.fail("it is done again"))
    assert run.has("exposure")


def test_a_new_folder_outlives_a_power_loss(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    with Run.create(tmp_path / "runs" / "one", "train", {}) as run:
        for path in (run.path / "config.json", run.path / "environment.json"):
            disk.assert_lasting(path)
        disk.assert_made(run.path)
        disk.assert_made(run.path.parent)


@pytest.mark.parametrize(("number", "code"), [(28, 3), (122, 3), (13, 2)])
def test_a_folder_on_a_full_disk_stops_the_run(number, code, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(runs, "write_json", full)
    with pytest.raises(EverlongError, match=f"cannot be made: {os.strerror(number)}") as error:
        Run.create(tmp_path / "run", "train", {})
    assert error.value.exit_code == code
    assert list(tmp_path.iterdir()) == []


def test_what_a_resume_was_given_is_kept_beside_what_the_run_was_begun_with(tmp_path):
    Run.create(tmp_path / "run", "train", {"on_nonfinite": "stop"}).close()
    with Run.open(tmp_path / "run") as run:
        assert run.resumed_with == {}
        run.resume_with({"on_nonfinite": "skip"})
        run.resume_with({"trackers": ["wandb"]})
    with Run.open(tmp_path / "run") as run:
        assert run.config == {"on_nonfinite": "stop"}
        assert run.resumed_with == {"on_nonfinite": "skip", "trackers": ["wandb"]}
