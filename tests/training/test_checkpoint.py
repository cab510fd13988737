import json
from pathlib import Path

import pytest
import torch

from everlong.errors import EverlongError, RunStopped
from everlong.training import checkpoint as module
from everlong.training.checkpoint import Checkpoint, Checkpoints, check_settings, discard
from tests.flushed import Disk

SETTINGS = {"steps": 10}


def parts(level: float) -> dict:
    return {
        "model": {"weight": torch.full((3, 2), level), "scale": torch.tensor(level, dtype=torch.bfloat16)},
        "history": {"loss": level / 3, "count": 7, "name": "a", "losses": torch.arange(3, dtype=torch.float64)},
    }


OWN = {
    "rows": torch.arange(3),
    "leaf.layers.0": torch.randn(3, 2, generator=torch.Generator().manual_seed(0)),
    "step": 4,
}


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def checkpoints(tmp_path: Path, said: list[str]) -> Checkpoints:
    return Checkpoints(tmp_path, "arm", said.append)


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


def newest(checkpoints: Checkpoints) -> Checkpoint:
    found = checkpoints.newest()
    assert found is not None
    return found


def test_what_is_written_is_read_back_to_the_bit(checkpoints):
    checkpoints.save(5, parts(0.1), OWN, SETTINGS)
    found = newest(checkpoints)
    assert (found.step, found.settings) == (5, SETTINGS)
    assert found.processes == 1
    assert found.parts.keys() == parts(0.1).keys()
    for mine, values in [(found.parts[part], values) for part, values in parts(0.1).items()] + [
        (found.carried[0], OWN)
    ]:
        assert mine.keys() == values.keys()
        for name, value in values.items():
            theirs = mine[name]
            if isinstance(value, torch.Tensor):
                assert torch.equal(theirs, value)
                assert theirs.dtype == value.dtype
            else:
                assert theirs == value


def test_nothing_there_is_no_checkpoint(checkpoints, said):
    assert checkpoints.newest() is None
    assert checkpoints.last_good() == "there is no earlier checkpoint"
    assert said == []


def test_the_two_newest_are_kept(checkpoints):
    for step in (5, 10, 15, 20):
        checkpoints.save(step, parts(step), OWN, SETTINGS)
    assert names(checkpoints) == ["step-000015", "step-000020"]
    assert newest(checkpoints).step == 20


@pytest.mark.parametrize("victim", ["checkpoint.json", "model.safetensors", "intervention-00000.safetensors"])
@pytest.mark.parametrize("harm", ["missing", "cut", "changed", "empty"])
def test_a_torn_one_is_passed_over_with_a_line_that_names_it(checkpoints, said, victim, harm):
    checkpoints.save(5, parts(1.0), OWN, SETTINGS)
    checkpoints.save(10, parts(2.0), OWN, SETTINGS)
    path = checkpoints.folder / "step-000010" / victim
    content = path.read_bytes()
    if harm == "missing":
        path.unlink()
    elif harm == "changed" and victim.endswith(".json"):
        path.write_text(content.decode().replace(module.FORMAT, "another-format"))
    else:
        harmed = {"cut": content[:-9], "changed": content[:-1] + bytes([content[-1] ^ 1]), "empty": b""}
        path.write_bytes(harmed[harm])
    assert newest(checkpoints).step == 5
    assert len(said) == 1
    assert "step-000010 is torn and passed over" in said[0]
    assert checkpoints.last_good().endswith("step-000005")


def test_one_that_was_being_written_at_a_kill_is_not_there(checkpoints):
    checkpoints.save(5, parts(1.0), OWN, SETTINGS)
    (checkpoints.folder / ".step-000010").mkdir()
    (checkpoints.folder / ".step-000010" / "model.safetensors").write_bytes(b"half")
    assert newest(checkpoints).step == 5
    checkpoints.save(10, parts(2.0), OWN, SETTINGS)
    assert names(checkpoints) == ["step-000005", "step-000010"]


def test_a_torn_one_gives_way_to_the_resumed_run(checkpoints):
    for step in (5, 10, 15):
        checkpoints.save(step, parts(step), OWN, SETTINGS)
    (checkpoints.folder / "step-000015" / "checkpoint.json").unlink()
    again = Checkpoints(checkpoints.folder.parents[1], "arm", lambda line: None)
    assert newest(again).step == 10
    again.save(12, parts(12), OWN, SETTINGS)
    assert names(again) == ["step-000010", "step-000012"]


def test_a_full_disk_stops_the_run_and_leaves_the_last_good_one_intact(checkpoints, monkeypatch):
    checkpoints.save(5, parts(1.0), OWN, SETTINGS)

    def full(tensors: dict, path: Path, **_: object) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save_file", full)
    with pytest.raises(RunStopped, match=r"step 10 cannot be written .*No space left.* is .*step-000005") as stop:
        checkpoints.save(10, parts(2.0), OWN, SETTINGS)
    assert stop.value.exit_code == 3
    assert names(checkpoints) == ["step-000005"]
    assert newest(checkpoints).step == 5


def test_files_are_safetensors_and_json_with_a_checksum_each(checkpoints):
    checkpoints.save(5, parts(1.0), OWN, SETTINGS)
    folder = checkpoints.folder / "step-000005"
    files = {path.name for path in folder.iterdir()}
    assert {Path(name).suffix for name in files} == {".json", ".safetensors"}
    assert set(json.loads((folder / "checkpoint.json").read_text())["sha256"]) == files - {"checkpoint.json"}


def test_other_settings_are_refused_by_name():
    checkpoint = Checkpoint(Path("there"), 5, {"steps": 10, "seed": 0}, 1, {}, [])
    check_settings(checkpoint, {"steps": 10, "seed": 0})
    with pytest.raises(EverlongError, match=r"there was written with other settings \(steps 20, was 10\)"):
        check_settings(checkpoint, {"steps": 20, "seed": 0})


def test_a_finished_phase_can_be_discarded(checkpoints):
    checkpoints.save(5, parts(1.0), OWN, SETTINGS)
    discard(checkpoints.folder.parents[1], "arm")
    assert checkpoints.newest() is None


def test_every_file_is_on_the_disk_before_the_checkpoint_has_its_name(checkpoints, monkeypatch):
    disk = Disk(monkeypatch)
    checkpoints.save(5, parts(1.0), OWN, SETTINGS)
    disk.assert_lasting(checkpoints.folder / "step-000005")
    disk.assert_made(checkpoints.folder)
    disk.assert_made(checkpoints.folder.parent)


def test_checkpoints_of_which_none_is_whole_stop_the_run_and_stay_as_they_are(checkpoints, said):
    for step in (5, 10):
        checkpoints.save(step, parts(step), OWN, SETTINGS)
        path = checkpoints.folder / f"step-{step:06d}" / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    before = {path: path.read_bytes() for path in checkpoints.folder.rglob("*") if path.is_file()}
    with pytest.raises(RunStopped, match=r"all checkpoints in .* are torn \(step-000010, step-000005\)") as stop:
        checkpoints.newest()
    assert stop.value.exit_code == 3
    assert len(said) == 2
    assert before == {path: path.read_bytes() for path in checkpoints.folder.rglob("*") if path.is_file()}


def test_one_that_the_disk_does_not_give_is_not_taken_for_torn(checkpoints, monkeypatch, said):
    for step in (5, 10):
        checkpoints.save(step, parts(step), OWN, SETTINGS)

    def broken(path: Path) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(module, "_digest", broken)
    with pytest.raises(
        RunStopped, match=r"step-000010 cannot be read from the disk .*Input/output error.* was changed"
    ):
        checkpoints.newest()
    assert said == []


def test_settings_of_the_engine_may_change_but_for_the_precision():
    checkpoint = Checkpoint(
        Path("there"), 5, {"on_nonfinite": "stop", "parallel": "ddp", "mixed_precision": False}, 1, {}, []
    )
    check_settings(checkpoint, {"on_nonfinite": "skip", "parallel": "fsdp", "mixed_precision": False})
    with pytest.raises(EverlongError, match="mixed_precision True, was False"):
        check_settings(checkpoint, {"on_nonfinite": "stop", "parallel": "ddp", "mixed_precision": True})
