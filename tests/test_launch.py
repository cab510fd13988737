import pytest

from everlong import launch
from everlong.cli.main import main
from everlong.errors import EverlongError

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}


@pytest.fixture
def by_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():
        monkeypatch.setenv(name, value)


def test_a_process_that_nobody_launched_is_alone(monkeypatch):
    for name in TORCHRUN:
        monkeypatch.delenv(name, raising=False)
    assert (launch.process_count(), launch.process_rank(), launch.local_rank()) == (1, 0, 0)
    assert launch.is_main()
    assert launch.command("train --resume RUN") == "everlong train --resume RUN"


def test_a_cluster_that_sets_some_of_the_names_has_not_launched_several(monkeypatch):
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert launch.process_count() == 1


def test_torchruns_place_and_command_are_known(by_torchrun):
    assert (launch.process_count(), launch.process_rank(), launch.local_rank()) == (8, 5, 1)
    assert not launch.is_main()
    wanted = "torchrun --nnodes 2 --nproc_per_node 4 -m everlong train --resume RUN"
    assert launch.command("train --resume RUN") == wanted


def test_one_machine_needs_no_number_of_machines(by_torchrun, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert launch.command("repair") == "torchrun --nproc_per_node 8 -m everlong repair"


@pytest.mark.parametrize(("name", "value"), [("WORLD_SIZE", None), ("WORLD_SIZE", "many"), ("RANK", None)])
def test_an_environment_that_is_half_torchruns_is_one_line_that_names_what_is_missing(
    by_torchrun, monkeypatch, capsys, name, value
):
    if value is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, value)
    with pytest.raises(EverlongError, match=rf"LOCAL_RANK is set .* but {name} is .*: start with torchrun, or unset"):
        launch.process_rank()
    assert main(["train", "--resume", "nowhere"]) == 2
    assert capsys.readouterr().err.count("everlong: LOCAL_RANK is set") == 1
