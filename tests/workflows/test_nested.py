"""What is made of several runs and started again goes on with the runs that are there."""

from everlong.workflows._nested import in_folder
from everlong.workflows.config import RepairConfig, RuntimeConfig


def test_a_new_run_keeps_its_settings_and_one_that_is_there_takes_its_own(tmp_path):
    config = RepairConfig(model="mine", steps=7, runtime=RuntimeConfig(seed=3))
    new = in_folder(config, tmp_path / "new")
    assert (new.model, new.steps, new.runtime.seed, new.runtime.output) == ("mine", 7, 3, str(tmp_path / "new"))
    assert in_folder(config, tmp_path) == RepairConfig(runtime=RuntimeConfig(resume=str(tmp_path)))
