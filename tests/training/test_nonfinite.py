"""A loss, gradient or state that is not finite is named, and stops the run or costs a step."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from everlong.errors import RunStopped
from everlong.training.config import MOST_SKIPPED_IN_A_ROW, TrainingConfig
from tests.training.arms import CONFIG, Arm, Crash, assert_same_to_the_bit

SKIP = replace(CONFIG, on_nonfinite="skip")


def state_of(layer: int) -> Callable[[Arm], Any]:
    """Makes a layer's final recurrent state infinite."""

    def harm(module: torch.nn.Module, inputs: Any, output: Any) -> tuple:
        leaves: dict[str, torch.Tensor] = output[1]
        return output[0], {**leaves, "recurrent": leaves["recurrent"] * float("inf")}

    return lambda arm: arm.model.backbone.layers[layer].mixer.register_forward_hook(harm)  # type: ignore[union-attr]


def loss_itself(arm: Arm) -> Any:
    def harm(module: torch.nn.Module, inputs: Any, logits: torch.Tensor) -> torch.Tensor:
        return logits * float("inf")

    return arm.model.lm_head.register_forward_hook(harm)


def gradient_of_the_norm(arm: Arm) -> Any:
    return arm.model.backbone.norm_f.weight.register_hook(lambda gradient: gradient * float("nan"))


def weight(arm: Arm) -> Any:
    with torch.no_grad():
        arm.model.get_parameter("backbone.layers.1.mixer.D").fill_(float("inf"))


WHERE = {
    "layers.0.recurrent": state_of(0),
    "layers.1.recurrent": state_of(1),
    "after the last layer": loss_itself,
    "the gradient of backbone.norm_f.weight": gradient_of_the_norm,
    "the weight backbone.layers.1.mixer.D": weight,
}


def harmed(arm: Arm, harm: Callable[[Arm], Any], config: TrainingConfig, *, steps: tuple[int, ...]) -> None:
    """Trains an arm in which something happens in some steps."""
    handles = []

    def before(step: int) -> None:
        while handles:
            handles.pop().remove()
        if step in steps:
            handles.append(harm(arm))

    arm.train(arm.tokens(before), config)


@pytest.mark.parametrize("place", WHERE)
def test_the_run_stops_and_names_the_place(tmp_path, place):
    arm = Arm(tmp_path / "run")
    with pytest.raises(RunStopped, match=r"arm stopped at step 4: loss .*, not finite .*") as stop:
        harmed(arm, WHERE[place], CONFIG, steps=(4,))
    assert place in str(stop.value)
    assert "--on-nonfinite skip" in str(stop.value)
    assert stop.value.exit_code == 3


@pytest.mark.parametrize("place", ["layers.0.recurrent", "after the last layer"])
@pytest.mark.parametrize("method", ["state_passing", "fitted_noise"])
def test_a_skipped_step_changes_nothing_and_is_counted_and_shown(tmp_path, method, place):
    arm = Arm(tmp_path / "run", method)
    seen: dict[int, list[Any]] = {}

    source = arm.tokens()
    batch = source.batch

    def remember(step: int, rows: range | None = None) -> Any:
        if source._peeked:
            state = [torch.as_tensor(value).clone() for value in arm.intervention.state_dict().values()]
            seen[step] = [*(parameter.detach().clone() for parameter in arm.model.parameters()), *state]
        return batch(step, rows)

    handles = []

    def before(step: int) -> None:
        while handles:
            handles.pop().remove()
        if step == 4:
            handles.append(WHERE[place](arm))

    source._before, source.batch = before, remember  # type: ignore[method-assign]
    record = arm.train(source, SKIP)
    assert len(seen[4]) == len(seen[5])
    assert all(torch.equal(one, other) for one, other in zip(seen[4], seen[5], strict=True))
    assert not all(torch.equal(one, other) for one, other in zip(seen[5], seen[6], strict=True))
    assert record.skipped_steps == 1
    assert record.scored_tokens == 9 * 24
    assert record.read_tokens == 10 * 24
    line = arm.lines()[4]
    assert line["loss"] is None if place == "after the last layer" else line["state_norm"] is None
    assert place in line["not_finite"]
    assert [each["skipped_steps"] for each in arm.lines()] == [0] * 4 + [1] * 6
    assert "step 4 is skipped" in arm.said
    assert "1 skipped" in arm.said
    json.loads((arm.folder / "metrics.jsonl").read_text().splitlines()[4], parse_constant=pytest.fail)


def test_a_run_with_skipped_steps_is_resumed_to_the_bit(tmp_path):
    whole, parts = Arm(tmp_path / "whole"), Arm(tmp_path / "parts")
    harmed(whole, state_of(1), SKIP, steps=(2, 6))
    with pytest.raises(Crash):
        harmed(parts, _crash_at_the_third(state_of(1)), SKIP, steps=(2, 6, 8))
    again = Arm(tmp_path / "parts", model_seed=99)
    harmed(again, state_of(1), SKIP, steps=(2, 6))
    assert_same_to_the_bit(again, whole)


def _crash_at_the_third(harm: Callable[[Arm], Any]) -> Callable[[Arm], Any]:
    calls = []

    def harm_or_crash(arm: Arm) -> Any:
        calls.append(arm)
        if len(calls) == 3:
            raise Crash
        return harm(arm)

    return harm_or_crash


def test_a_run_of_which_every_step_was_skipped_has_trained_nothing_and_says_so(tmp_path):
    with pytest.raises(RunStopped, match="every step was skipped"):
        harmed(Arm(tmp_path / "run"), loss_itself, replace(SKIP, steps=4), steps=tuple(range(4)))


def test_skipped_steps_in_a_row_stop_the_run_even_where_a_resume_lies_between(tmp_path):
    config, most = replace(SKIP, checkpoint_every=1), MOST_SKIPPED_IN_A_ROW
    with pytest.raises(Crash):
        harmed(Arm(tmp_path / "run"), _crash_at_the_third(loss_itself), config, steps=tuple(range(2, 10)))
    again = Arm(tmp_path / "run")
    with pytest.raises(
        RunStopped, match=f"at step {most + 1}: {most} steps in a row were skipped, .*step-00000"
    ) as stop:
        harmed(again, loss_itself, config, steps=tuple(range(10)))
    assert stop.value.exit_code == 3
    assert again.lines()[-1]["step"] == most + 1
    spread = Arm(tmp_path / "spread")
    harmed(spread, loss_itself, SKIP, steps=(0, 1, 2, 3, 5, 6, 7, 8))
    assert spread.lines()[-1]["skipped_steps"] == 8
    assert "arm: 8 of 10 steps were skipped" in spread.said


def carried(arm: Arm, row: int, value: float) -> None:
    """Sets what a row carries to something from which no step is finite, though it is finite itself."""
    leaves = arm.intervention._slots._leaves  # type: ignore[attr-defined]
    for path, leaf in leaves.items():
        if "recurrent" in path:
            leaves[path] = leaf.index_fill(0, torch.tensor([row]), value)


@pytest.mark.parametrize(("permuted", "zeroed"), [("none", 1), ("elements", 3)])
def test_a_carried_state_that_is_at_fault_is_given_up_with_the_step_and_counted(tmp_path, permuted, zeroed):
    """Kept, it would make every later step the same."""
    arm = Arm(tmp_path / "run", reset_probability=0.0, permuted=permuted)
    states = []

    def before(step: int) -> None:
        if step == 3 and not states:
            carried(arm, 1, 3e38)
        if step in (3, 4):
            states.append(arm.intervention.state_dict())

    record = arm.train(arm.tokens(before), SKIP)
    assert (record.skipped_steps, record.zeroed_rows) == (1, zeroed)
    assert arm.lines()[3]["zeroed_rows"] == zeroed
    assert f"{zeroed} rows start from zero next" in arm.said
    old, new = (torch.as_tensor(each["leaf.layers.0.recurrent"]) for each in (states[0], states[-1]))
    assert not new[1].any()
    assert torch.equal(new[0], old[0]) == (permuted == "none")
    assert torch.as_tensor(states[-1]["ages"]).tolist() == ([24, 0, 24] if permuted == "none" else [0, 0, 0])


def test_a_large_state_whose_square_float32_cannot_hold_is_finite(tmp_path):
    """1e25 squared is beyond float32; the step that starts from it is like any other."""
    arm = Arm(tmp_path / "run", reset_probability=0.0)

    def before(step: int) -> None:
        if step == 3:
            carried(arm, 1, 1e25)

    arm.train(arm.tokens(before))
    assert arm.lines()[3]["state_norm"] > 1e22


def test_the_gradient_that_is_named_is_the_first_on_the_way_back(tmp_path):
    """A gradient that is not finite in layer 1 spoils all before it, whose names come first in the model."""
    arm = Arm(tmp_path / "run")

    def harm(arm: Arm) -> Any:
        return arm.model.backbone.layers[1].register_forward_hook(  # type: ignore[union-attr]
            lambda module, inputs, output: (_spoilt_on_the_way_back(output[0]), output[1])
        )

    with pytest.raises(RunStopped, match=r"first on the way back in the gradient of backbone\.layers\.1\.") as stop:
        harmed(arm, harm, CONFIG, steps=(4,))
    wrong, of = re.findall(r"in (\d+) of (\d+) in all", str(stop.value))[0]
    assert 10 < int(wrong) < int(of)


def _spoilt_on_the_way_back(hidden: torch.Tensor) -> torch.Tensor:
    hidden = hidden.clone()
    hidden.register_hook(lambda gradient: gradient * float("nan"))
    return hidden


@pytest.mark.parametrize("then", ["stop", "skip"])
def test_a_batch_that_is_read_ahead_and_not_finite_stops_the_run_or_is_left_out(tmp_path, then):
    arm = Arm(tmp_path / "run", prefill_steps=3, reset_probability=0.0)

    def work() -> None:
        harmed(arm, state_of(0), replace(CONFIG, on_nonfinite=then), steps=(1,))

    if then == "stop":
        with pytest.raises(
            RunStopped, match=r"stopped while it read ahead, in batch 1: not finite .*layers\.0\.recurrent"
        ):
            work()
        return
    work()
    assert "batch 1 is not read ahead: not finite first in the final state's leaf layers.0.recurrent" in arm.said
    assert [line["skipped_steps"] for line in arm.lines()] == [0] * 10
    assert arm.lines()[0]["state_age_mean"] == 16  # of three batches of 8 tokens two were kept
