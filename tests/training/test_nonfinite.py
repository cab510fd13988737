"""A loss, gradient or state that is not finite is named, and stops the run or costs a step."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from everlong.errors import RunStopped
from everlong.training.config import TrainingConfig
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
        harmed(Arm(tmp_path / "run"), loss_itself, SKIP, steps=tuple(range(10)))
