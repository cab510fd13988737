import json
import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from everlong.errors import EverlongError
from everlong.training import _trackers
from everlong.training.parallel import make_accelerator
from tests.training.arms import CONFIG, PHASE, Arm


def test_tensorboard_shows_what_the_metrics_say(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    arm = Arm(tmp_path / "run")
    arm.train(config=replace(CONFIG, steps=3, trackers=("tensorboard",)))
    events = accumulator.EventAccumulator(str(arm.folder / "trackers" / PHASE))
    events.Reload()
    lines = [json.loads(line) for line in (arm.folder / "metrics.jsonl").read_text().splitlines()]
    numbers = {name for name, value in lines[0].items() if isinstance(value, int | float)}
    assert numbers == set(events.Tags()["scalars"])
    for name in ("loss", "gradient_norm", "state_norm", "tokens_per_second"):
        shown = [(event.step, event.value) for event in events.Scalars(name)]
        assert shown == [(line["step"], pytest.approx(line[name])) for line in lines]


def test_wandb_writes_into_the_run_folder_and_sends_nothing(tmp_path, monkeypatch):
    """What Accelerate gives W&B: it is not installed here."""
    given = {}

    def start(name: str, init_kwargs: dict) -> None:
        given.update(name=name, **init_kwargs["wandb"])

    monkeypatch.delenv("WANDB_MODE", raising=False)
    accelerator = make_accelerator(torch.device("cpu"))
    monkeypatch.setattr(accelerator, "init_trackers", start)
    monkeypatch.setattr(accelerator, "trackers", [SimpleNamespace(name="wandb", finish=lambda: None)])
    _trackers.Trackers(accelerator, ("wandb",), PHASE, tmp_path, {"steps": 3})
    assert given == {"name": PHASE, "mode": "offline", "dir": str(tmp_path), "config": {"steps": 3}}


def test_a_tracker_that_is_not_installed_is_refused_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(_trackers, "find_spec", lambda name: None)
    arm = Arm(tmp_path / "run")
    with pytest.raises(
        EverlongError, match=r"--trackers wandb is not installed here: pip install everlong\[trackers\]"
    ):
        arm.train(config=replace(CONFIG, trackers=("wandb",)))
    assert not (arm.folder / "metrics.jsonl").exists()


def test_a_folder_of_a_trackers_name_is_no_package(tmp_path, monkeypatch):
    """W&B itself makes a folder "wandb" where it runs, which Python would import as an empty package."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    (tmp_path / "wandb").mkdir()
    with pytest.raises(EverlongError, match="--trackers wandb is not installed here"):
        _trackers.check_trackers(("wandb",))


def test_a_tracker_that_accelerate_left_out_in_silence_is_an_error(tmp_path, monkeypatch):
    accelerator = make_accelerator(torch.device("cpu"))
    monkeypatch.setattr(accelerator, "init_trackers", lambda name, init_kwargs: None)
    with pytest.raises(EverlongError, match="--trackers wandb does not start here"):
        _trackers.Trackers(accelerator, ("wandb",), PHASE, tmp_path, {})


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_wandb_itself_takes_every_step_offline_and_is_closed(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb", reason="W&B is not installed here: pip install everlong[trackers]")
    if not hasattr(wandb, "init"):
        pytest.skip("what is called wandb here is a folder, not W&B")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("WANDB_SILENT", "true")
    arm = Arm(tmp_path / "run")
    arm.train(config=replace(CONFIG, steps=3, trackers=("wandb",)))
    assert wandb.run is None  # closed
    written = list((arm.folder / "trackers").glob("wandb/offline-run-*/run-*.wandb"))
    assert len(written) == 1
    deadline = time.monotonic() + 60  # W&B's own process writes it out after the run is closed
    while written[0].read_bytes().count(b"gradient_norm") < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    content = written[0].read_bytes()
    for name in ("gradient_norm", "state_norm", "learning_rate"):
        assert content.count(name.encode()) >= 3
