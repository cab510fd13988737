"""Accumulation, recomputation, bfloat16 and compilation change how a step is computed, not what it is."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from everlong.ops.backends import Recurrence
from everlong.training import parallel
from everlong.training.parallel import TrainedModel
from tests.training import arms, compiled
from tests.training.arms import CONFIG, Arm, assert_same_to_the_bit, checkpoint_of, tiny_model

ROWS = 4
TOLERANCE = 2e-6  # of a loss, and of a weight after 10 steps of 1e-2: sums in float32 are taken in another order


def train(folder: Path, method: str = "state_passing", before: Any = None, **settings: Any) -> Arm:
    arm = Arm(folder, method)
    arm.train(arm.tokens(before, rows=ROWS), replace(CONFIG, batch_size=ROWS, **settings))
    return arm


@pytest.mark.parametrize("parts", [2, 4])
@pytest.mark.parametrize("method", ["zero", "state_passing", "fitted_noise", "tbtt"])
def test_parts_of_a_batch_make_the_step_of_the_whole(tmp_path, method, parts):
    whole, accumulated = train(tmp_path / "1", method), train(tmp_path / "k", method, gradient_accumulation=parts)
    ours, theirs = checkpoint_of(accumulated.folder, 10), checkpoint_of(whole.folder, 10)
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        tensor, other = torch.as_tensor(ours[name]), torch.as_tensor(value)
        if name.startswith(("model/", "history/")):
            torch.testing.assert_close(tensor, other, rtol=0, atol=TOLERANCE, msg=name)
        elif name.startswith("intervention") and not name.endswith("/sums"):
            torch.testing.assert_close(tensor, other, rtol=1e-4, atol=1e-5, msg=name)


def test_parts_of_unequal_numbers_of_scored_targets_weigh_as_they_should(tmp_path):
    mask = torch.ones(ROWS, 8, dtype=torch.bool)
    mask[0, 1:] = False
    one, other = Arm(tmp_path / "one", "zero"), Arm(tmp_path / "other", "zero")
    one.train(one.tokens(rows=ROWS, loss_mask=mask))
    other.train(other.tokens(rows=ROWS, loss_mask=mask), replace(CONFIG, gradient_accumulation=4))
    assert [line["loss"] for line in one.lines()] == pytest.approx([line["loss"] for line in other.lines()], abs=1e-5)


@pytest.mark.parametrize("backend", ["chunked", "cpu"])
def test_recomputed_blocks_keep_less_and_leave_weights_states_and_metrics_to_the_bit(tmp_path, monkeypatch, backend):
    def model(seed: int = 0) -> Any:
        made = tiny_model(seed)
        for module in made.modules():
            if isinstance(module, Recurrence):
                module.backend = backend
        return made

    monkeypatch.setattr(arms, "tiny_model", model)
    kept: dict[str, int] = {}
    read = TrainedModel.__call__

    def weigh(self: TrainedModel, *inputs: Any, **named: Any) -> Any:
        def pack(tensor: torch.Tensor) -> torch.Tensor:
            kept[folder] = kept.get(folder, 0) + tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            return read(self, *inputs, **named)

    monkeypatch.setattr(TrainedModel, "__call__", weigh)
    folder = "kept"
    plain = train(tmp_path / folder)
    folder = "recomputed"
    recomputed = train(tmp_path / folder, activation_checkpointing=True)
    assert kept["recomputed"] < kept["kept"] / 3
    assert_same_to_the_bit(recomputed, plain)


def test_mixed_precision_keeps_weights_and_states_wide_and_recomputes_as_it_computed(tmp_path):
    arm = Arm(tmp_path / "mixed")
    arm.train(arm.tokens(rows=ROWS), replace(CONFIG, mixed_precision=True))
    assert {parameter.dtype for parameter in arm.model.parameters()} == {torch.float32}
    carried = [value for name, value in arm.intervention.state_dict().items() if name.startswith("leaf.")]
    assert {torch.as_tensor(value).dtype for value in carried} == {torch.float32}
    wide = train(tmp_path / "wide")
    losses = [[line["loss"] for line in each.lines()] for each in (arm, wide)]
    assert losses[0] == pytest.approx(losses[1], abs=0.02)
    assert losses[0] != losses[1]
    assert_same_to_the_bit(train(tmp_path / "again", mixed_precision=True, activation_checkpointing=True), arm)


@pytest.mark.parametrize("recomputed", [False, True])
def test_blocks_are_compiled_where_that_is_asked_for(tmp_path, monkeypatch, recomputed):
    """What torch.compile makes of a block is what is run; the types that tests check keep the real one from tracing."""
    calls = []

    def compile_(function: Callable[..., Any]) -> Callable[..., Any]:
        def compiled(*inputs: Any) -> Any:
            calls.append(function.__self__)  # type: ignore[attr-defined]
            return function(*inputs)

        return compiled

    monkeypatch.setattr(parallel.torch, "compile", compile_)
    compiled = train(tmp_path / "compiled", steps=3, compile=True, activation_checkpointing=recomputed)
    assert calls[:2] == list(compiled.model.backbone.blocks)
    assert len(calls) == 3 * 2 * (2 if recomputed else 1)
    assert_same_to_the_bit(compiled, train(tmp_path / "plain", steps=3))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_what_torch_compile_really_makes_of_a_block_is_the_block(tmp_path):
    """Graphs were made, and two steps of 1e-2 are the plain ones but for rounding: seen 1e-6."""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    run = subprocess.run(
        [sys.executable, "-m", compiled.__name__, str(tmp_path)],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    apart, graphs = run.stdout.split()
    assert float(apart) < 1e-5
    assert int(graphs) > 0


@pytest.fixture(autouse=True)
def _models_are_left_as_they_were(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made = []
    start = TrainedModel.__init__

    def remember(self: TrainedModel, model: Any, *others: Any) -> None:
        made.append(model)
        start(self, model, *others)

    monkeypatch.setattr(TrainedModel, "__init__", remember)
    yield
    assert not [block for model in made for block in model.backbone.blocks if "forward" in block.__dict__]
