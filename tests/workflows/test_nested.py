"""What is made of several runs and started again goes on with the runs that are there, if they are those asked for."""

from dataclasses import replace

import pytest

from everlong.errors import EverlongError
from everlong.models.config import GLAConfig
from everlong.runs import Run
from everlong.workflows._nested import in_folder
from everlong.workflows._settings import written
from everlong.workflows.config import RepairConfig, RuntimeConfig, TrainConfig

CONFIG = RepairConfig(model="mine", steps=7, methods=("zero",), runtime=RuntimeConfig(seed=3))


@pytest.fixture
def begun(tmp_path):
    """A run that was begun with ``CONFIG``."""
    config = in_folder(CONFIG, tmp_path / "run")
    Run.create(tmp_path / "run", "repair", written(config)).close()
    return tmp_path / "run"


def test_a_new_run_keeps_its_settings_and_one_that_is_there_is_gone_on_with(begun):
    new = in_folder(CONFIG, begun.parent / "new")
    assert new == replace(CONFIG, runtime=RuntimeConfig(seed=3, output=str(begun.parent / "new")))
    assert in_folder(CONFIG, begun) == RepairConfig(runtime=RuntimeConfig(resume=str(begun)))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"steps": 8}, "was begun with steps 7, now 8 is asked for"),
        ({"methods": ("zero", "tbtt")}, "was begun with methods zero, now zero tbtt is asked for"),
        ({"steps": None}, "was begun with steps 7, now nothing is asked for"),
        ({"diagnosis": replace(CONFIG.diagnosis, documents=9)}, "was begun with diagnosis.documents 32, now 9 is"),
        ({"runtime": RuntimeConfig(seed=4)}, "was begun with runtime.seed 3, now 4 is asked for"),
    ],
)
def test_a_run_of_other_settings_is_not_passed_off_as_what_is_asked_for(begun, change, told):
    with pytest.raises(EverlongError, match=told):
        in_folder(replace(CONFIG, **change), begun)


def test_another_way_to_write_a_path_is_no_other_setting(begun, monkeypatch):
    monkeypatch.chdir(begun.parent)
    assert in_folder(replace(CONFIG, model=str(begun.parent / "mine")), begun).runtime.resume == str(begun)


def test_another_architecture_is_another_setting(tmp_path):
    config = TrainConfig(runtime=RuntimeConfig(output=str(tmp_path / "run")))
    Run.create(tmp_path / "run", "train", written(config)).close()
    with pytest.raises(EverlongError, match=r"was begun with model\.architecture mamba2, now gla is asked for"):
        in_folder(replace(config, model=GLAConfig(vocab_size=256)), tmp_path / "run")


def test_a_folder_that_is_no_run_is_not_gone_on_with(tmp_path):
    with pytest.raises(EverlongError, match=r"is no run folder: it has no readable config\.json"):
        in_folder(CONFIG, tmp_path)
