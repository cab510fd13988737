"""Two processes that torchrun has started under the Trainer's DDP do what one does."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integrations import two_ranks
from tests.integrations.trainers import STEPS, assert_close, assert_same, carried, model_of, other_weights, weights

TOLERANCE = 2e-6  # of the loss, and of a weight after 6 steps of 1e-2: sums in float32 are taken in another order
END = f"checkpoint-{STEPS}"


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    """The folder of all trainings, and what each of two processes saw."""
    folder, root = tmp_path_factory.mktemp("ranks"), Path(__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    run = subprocess.run(
        [
            sys.executable,
            *("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"),
            "-m",
            two_ranks.__name__,
            str(folder),
        ],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder, [json.loads((folder / f"seen-{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of the same trainings, each by this process with all rows, and what it saw."""
    folder = tmp_path_factory.mktemp("alone")
    return folder, {name: two_ranks.train(folder, name, 1) for name in two_ranks.HALVES}


@pytest.mark.parametrize("name", two_ranks.HALVES)
def test_two_processes_give_the_result_of_one(ranks, alone, name):
    """Draws by global row, statistics and scored targets summed over both, gradients averaged."""
    folder, seen = ranks
    assert [each[name]["wrapped"] for each in seen] == ["DistributedDataParallel"] * 2
    assert len(seen[0][name]["losses"]) == STEPS
    assert seen[0][name]["losses"] == pytest.approx(alone[1][name]["losses"], rel=0, abs=TOLERANCE)
    assert_close(weights(folder / "ranks" / name / END), weights(alone[0] / name / END), TOLERANCE)


@pytest.mark.parametrize(
    ("name", "rows"),
    [("state_passing", ([0, 1], [2, 3])), ("tbtt", ([0, 1], [2, 3])), ("in_parts", ([0, 2], [1, 3]))],
)
def test_carried_states_stay_with_their_process_and_row(ranks, alone, name, rows):
    ours = [carried(ranks[0] / "ranks" / name / END, rank) for rank in range(2)]
    theirs = carried(alone[0] / name / END)
    assert [each["rows"].tolist() for each in ours] == list(rows)
    for leaf in [key for key in theirs if key.startswith("leaf.") or key == "ages"]:
        both = torch.cat([each[leaf] for each in ours])[torch.tensor(rows).flatten().argsort()]
        torch.testing.assert_close(both, theirs[leaf], rtol=0, atol=1e-5)


def test_fitted_moments_are_those_of_all_rows_on_each_process(ranks, alone):
    ours = [carried(ranks[0] / "ranks" / "fitted_noise" / END, rank) for rank in range(2)]
    theirs = carried(alone[0] / "fitted_noise" / END)
    for moment in ("mean", "variance"):
        assert torch.equal(ours[0][moment], ours[1][moment])
        torch.testing.assert_close(ours[0][moment], theirs[moment], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", two_ranks.RESUMED)
def test_two_processes_resume_to_the_bit(ranks, name):
    whole, resumed = (ranks[0] / which / name / END for which in ("ranks", "resumed"))
    assert_same(weights(whole), weights(resumed))
    for rank in range(2):
        assert_same(carried(whole, rank), carried(resumed, rank))


@pytest.mark.parametrize("name", two_ranks.RESUMED)
def test_one_process_goes_on_where_two_were_and_says_so(ranks, alone, tmp_path, name, caplog):
    start = str(ranks[0] / "ranks" / name / "checkpoint-3")
    with caplog.at_level(logging.WARNING, logger="everlong"):
        two_ranks.train(tmp_path, name, 1, start=start, model=other_weights(model_of()))
    assert "was written by 2 processes, otherwise than now: each row keeps its state" in caplog.text
    assert_close(weights(tmp_path / name / END), weights(alone[0] / name / END), TOLERANCE)
