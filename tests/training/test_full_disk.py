"""A disk that is really full, where a small one may be mounted."""

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from everlong.errors import RunStopped
from tests.training.arms import CONFIG, Arm, assert_same_to_the_bit


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("no small filesystem can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill_up(ballast: Path) -> None:
    """Writes until there is no room for another page."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


def test_the_run_stops_and_goes_on_from_the_last_good_checkpoint_when_there_is_room(small_disk, tmp_path):
    whole = Arm(tmp_path / "whole")
    whole.train()
    ballast = small_disk / "ballast"

    def fill(step: int) -> None:
        if step == 7:
            fill_up(ballast)
            ballast.write_bytes(ballast.read_bytes()[: -(16 << 10)])  # the metrics have room, a checkpoint has none

    arm = Arm(small_disk / "run")
    with pytest.raises(RunStopped, match=r"step 10 cannot be written .*No space left.* is .*step-000005") as stop:
        arm.train(arm.tokens(fill))
    assert stop.value.exit_code == 3
    assert arm.checkpoints() == ["step-000005"]
    ballast.unlink()
    again = Arm(small_disk / "run", model_seed=99)
    again.train()
    assert_same_to_the_bit(again, whole)


def test_metrics_that_find_no_room_stop_the_run(small_disk):
    arm = Arm(small_disk / "run")

    def fill(step: int) -> None:
        if step == 7:
            fill_up(small_disk / "ballast")

    with pytest.raises(RunStopped, match=r"(metrics|checkpoint of step 10) cannot be written .*No space left"):
        arm.train(arm.tokens(fill), replace(CONFIG, steps=400))
