"""Two processes that torchrun has started do what one does, and lose nothing to a kill, a signal or a full disk.

Two starts of torchrun serve all tests here: in the first a process is killed, in the second all else happens.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.data.test_shuffled_chunks import FIRSTS
from tests.training import two_ranks
from tests.training.arms import Arm, assert_equal_checkpoints, checkpoint_of

TOLERANCE = 2e-6  # of a loss, and of a weight after 10 steps of 1e-2: sums in float32 are taken in another order


def torchrun(folder: Path, what: str) -> tuple[int, str]:
    """Exit code and output of two processes."""
    command = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
        "-m",
        two_ranks.__name__,
        str(folder),
        what,
    ]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    run = subprocess.run(
        [sys.executable, *command], cwd=root, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    return run.returncode, run.stdout + run.stderr


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, dict[str, Any]]:
    """The folder, torchrun's exit code, and what rank 0 saw, after rank 1 was killed at the beginning of step 7."""
    folder = tmp_path_factory.mktemp("ranks")
    code, _ = torchrun(folder, "killed")
    assert not (folder / "results-killed-1.json").exists()
    left = folder / "results-killed-0.json"  # torchrun ends the survivor, too, and may be faster than it
    return folder, code, json.loads(left.read_text()) if left.exists() else {}


@pytest.fixture(scope="module")
def ranks(killed: tuple[Path, int, dict[str, Any]]) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of all arms, and what each rank saw."""
    folder = killed[0]
    code, output = torchrun(folder, "all")
    assert code == 0, output
    return folder, [json.loads((folder / f"results-all-{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the same arms, each trained by this process alone; and what each says it did."""
    folder = tmp_path_factory.mktemp("alone")
    arms = {name: two_ranks.train(folder / name, name) for name in {**two_ranks.FIELDS, **two_ranks.ROUGH}}
    (folder / "summaries.json").write_text(json.dumps({name: arm.did for name, arm in arms.items()}))
    return folder


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def weights(checkpoint: dict[str, Any]) -> dict[str, torch.Tensor]:
    return {name: value for name, value in checkpoint.items() if name.startswith("model/")}


def assert_close(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, other[name], rtol=0, atol=TOLERANCE, msg=name)


@pytest.mark.parametrize("name", two_ranks.FIELDS)
def test_two_ranks_give_the_one_rank_result(ranks, alone, name):
    """One batch, shared; draws by global row; statistics summed; unequal numbers of scored targets weighed right."""
    ours, theirs = checkpoint_of(ranks[0] / name, 10), checkpoint_of(alone / name, 10)
    assert losses(ranks[0] / name) == pytest.approx(losses(alone / name), rel=0, abs=TOLERANCE)
    assert_close(weights(ours), weights(theirs))
    counted = [key for key in theirs if key.startswith("history/") and key != "history/losses"]
    assert {key: ours[key] for key in counted} == {key: theirs[key] for key in counted}


@pytest.mark.parametrize("name", two_ranks.FIELDS)
def test_what_an_intervention_says_it_did_is_of_all_rows_on_each_rank(ranks, alone, name):
    wanted = json.loads((alone / "summaries.json").read_text())[name]
    for seen in ranks[1]:
        said = seen["summaries"][name]
        assert said.keys() == wanted.keys()
        for key, value in wanted.items():
            assert said[key] == pytest.approx(value, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", two_ranks.ROUGH)
def test_two_ranks_with_bfloat16_products_recomputed_blocks_and_parts_stay_beside_one_rank(ranks, alone, name):
    """Seen: 6e-4 nats; the same arm with products in float32 is 6e-3 away, another method 0.05."""
    arms = ((ranks[0], name), (alone, name), (alone, "state_passing"))
    ours, theirs, single = (losses(folder / arm) for folder, arm in arms)
    assert ours == pytest.approx(theirs, rel=0, abs=2e-3)
    assert single != pytest.approx(theirs, rel=0, abs=2e-3)
    kept = checkpoint_of(ranks[0] / name, 10)
    assert {value.dtype for value in weights(kept).values()} == {torch.float32}


def test_over_both_ranks_and_all_parts_every_chunk_is_read_once_an_epoch(ranks):
    """Twelve chunks, four a step: an epoch is three steps, and ten steps are three epochs and a step."""
    reads = [tuple(read) for seen in ranks[1] for read in seen["chunks"]]
    assert [len(seen["chunks"]) for seen in ranks[1]] == [20, 20]  # a rank reads its own rows alone, in two parts
    for epoch in range(3):
        assert sorted(first for step, firsts in reads if step // 3 == epoch for first in firsts) == FIRSTS


@pytest.mark.parametrize("name", ["state_passing", "tbtt", "fsdp", "permuted"])
def test_carried_states_stay_with_their_rank_and_row(ranks, alone, name):
    ours, theirs = checkpoint_of(ranks[0] / name, 10), checkpoint_of(alone / name, 10)
    carried = [key.partition("/")[2] for key in theirs if key.startswith("intervention-")]
    assert ours["intervention-00000/rows"].tolist() == [0, 1]
    assert ours["intervention-00001/rows"].tolist() == [2, 3]
    for key in carried:
        both = torch.cat([ours[f"intervention-0000{rank}/{key}"] for rank in range(2)])
        torch.testing.assert_close(both, theirs[f"intervention-00000/{key}"], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("method", "moments"),
    [("fitted_noise", ("mean", "variance")), ("correlated_noise", ("0.mean", "0.variance", "1.sketch"))],
)
def test_fitted_moments_are_those_of_all_rows_on_each_rank(ranks, alone, method, moments):
    ours, theirs = checkpoint_of(ranks[0] / method, 10), checkpoint_of(alone / method, 10)
    for name in moments:
        assert torch.equal(ours[f"intervention-00000/{name}"], ours[f"intervention-00001/{name}"])
        torch.testing.assert_close(ours[f"intervention-00000/{name}"], theirs[f"intervention-00000/{name}"])


def test_a_killed_rank_ends_the_run_and_a_resume_equals_the_uninterrupted_run_to_the_bit(killed, ranks):
    _, code, seen = killed
    assert code != 0
    if seen:
        assert seen["killed"].startswith("3 another of the 2 processes has gone; the last good checkpoint is ")
    folder = ranks[0]
    whole, resumed = checkpoint_of(folder / "state_passing", 10), checkpoint_of(folder / "killed", 10)
    assert_equal_checkpoints(whole, resumed)
    assert losses(folder / "state_passing") == losses(folder / "killed")


def test_a_signal_to_one_rank_saves_all_and_a_resume_equals_the_uninterrupted_run_to_the_bit(ranks):
    folder, seen = ranks
    wanted = (
        "130 arm was interrupted and saved after 7 of 10 steps; go on with "
        f"`torchrun --nproc_per_node 2 -m everlong repair --resume {folder / 'interrupted'}`"
    )
    assert [each["interrupted"] for each in seen] == [wanted, wanted]
    whole, resumed = checkpoint_of(folder / "state_passing", 10), checkpoint_of(folder / "interrupted", 10)
    assert_equal_checkpoints(whole, resumed)


def test_fsdp2_has_dtensor_parameters_on_a_cpu_mesh_and_gives_a_plain_model_back(ranks):
    for each in ranks[1]:
        assert each["sharded"] == [8 * each["parameters"], True]  # in 8 steps
        assert each["plain"]


def test_fsdp2_resumes_to_the_bit(ranks):
    whole, resumed = checkpoint_of(ranks[0] / "fsdp", 10), checkpoint_of(ranks[0] / "fsdp-crashed", 10)
    assert_equal_checkpoints(whole, resumed)


@pytest.mark.parametrize("name", two_ranks.TO_BE_RESUMED_ALONE)
def test_one_process_goes_on_where_two_were_and_says_what_is_lost(ranks, alone, name):
    folder = ranks[0] / f"{name}-to-be-resumed-alone"
    arm, given = two_ranks.arm_of(folder, name, model_seed=99)
    arm.train(arm.tokens(rows=two_ranks.ROWS), **given)
    assert "was written by 2 processes, 1 go on: each row keeps its state" in arm.said
    assert "to rounding, not to the bit" in arm.said
    assert_close(weights(checkpoint_of(folder, 10)), weights(checkpoint_of(alone / name, 10)))


def test_what_cannot_be_given_to_another_number_of_processes_is_said_to_be_lost(ranks, tmp_path, monkeypatch):
    folder = ranks[0] / "zero"
    arm = Arm(folder, "zero", model_seed=99)
    monkeypatch.setattr(arm.intervention, "regrouped", lambda parts, rows: None)
    _, given = two_ranks.arm_of(folder, "zero")
    arm.train(arm.tokens(rows=two_ranks.ROWS), **given)
    assert "what zero kept is lost" in arm.said


def test_a_disk_that_is_full_for_one_rank_stops_both_and_leaves_the_last_good_checkpoint(ranks):
    for rank, seen in enumerate(ranks[1]):
        told = "" if rank else "process 1: "
        assert seen["full"].startswith(f"3 {told}the checkpoint of step 10 cannot be written to ")
        assert seen["full"].endswith("step-000005")
    assert ranks[1][0]["full-left"] == ["step-000005"]


def test_what_is_not_finite_on_one_rank_stops_both_with_the_same_words(ranks):
    one, other = (seen["poisoned"] for seen in ranks[1])
    assert one == other
    assert one.startswith("3 arm stopped at step 6: loss nan, gradient norm nan, not finite after the last layer: ")


def test_a_step_that_is_not_finite_on_one_rank_is_skipped_on_both(ranks):
    """What harmed it was no carried state, so that all rows keep theirs."""
    assert [seen["skipped"] for seen in ranks[1]] == [[1, 0], [1, 0]]
    lines = [json.loads(line) for line in (ranks[0] / "skipped" / "metrics.jsonl").read_text().splitlines()]
    assert [line["skipped_steps"] for line in lines] == [0] * 6 + [1] * 4
    assert lines[6]["loss"] is None
    found = checkpoint_of(ranks[0] / "skipped", 10)
    assert all(torch.isfinite(value).all() for value in weights(found).values())
    assert found["history/skipped_steps"] == 1


def test_a_carried_state_at_fault_on_one_rank_is_given_up_there_alone(ranks):
    assert [seen["at-fault"] for seen in ranks[1]] == [[1, 1], [1, 1]]
    found = checkpoint_of(ranks[0] / "at-fault", 10)
    assert found["intervention-00000/ages"].tolist() == [72, 72]  # nine steps of 8 tokens; one was skipped
    assert found["intervention-00001/ages"].tolist() == [24, 72]  # three since step 6


def test_a_signal_to_one_rank_while_the_last_step_is_saved_ends_both_as_interrupted(ranks):
    """After the step was measured, which is when they otherwise tell each other."""
    for seen in ranks[1]:
        assert seen["late"].startswith("130 arm was interrupted and saved after 10 of 10 steps")


def test_rows_that_cannot_be_shared_evenly_are_refused(ranks):
    for seen in ranks[1]:
        assert seen["odd"].startswith("2 --batch-size 3 cannot be shared evenly by 2 processes")
