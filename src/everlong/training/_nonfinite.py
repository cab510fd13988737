"""A step that is not finite: where it began, in words, and what is done about it."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from everlong.errors import RunStopped
from everlong.interventions._protocol import Value
from everlong.state import StateSpec
from everlong.training._rows import Rows
from everlong.training.config import MOST_SKIPPED_IN_A_ROW
from everlong.training.history import History
from everlong.training.processes import Processes


class NonFinite:
    """What is done about steps that are not finite; all processes do it together.

    Args:
        then: whether to stop, or to skip the step.
        rows: of the steps.
        history: counts what is skipped.
        phase: names the training.
        command: goes on with the run.
        last_good: where the last checkpoint is, in words.
        say: is told of what is skipped, in a line.
    """

    def __init__(
        self,
        then: Literal["stop", "skip"],
        rows: Rows,
        history: History,
        *,
        phase: str,
        command: str,
        last_good: Callable[[], str],
        say: Callable[[str], None],
    ):
        self._then, self._rows, self._history, self._phase = then, rows, history, phase
        self._command, self._last_good, self._say = command, last_good, say

    def in_a_step(
        self, step: int, drawn: int, before: Mapping[str, Value], values: str, loss: float, squares: Sequence[float]
    ) -> tuple[dict[str, Any], RunStopped | None]:
        """Gives the intervention back what it kept, but for the carried states that are at fault.

        Args:
            step: of the training; the history has counted it as skipped.
            drawn: the step of the data.
            before: what the intervention kept before the step.
            values: loss and gradient norm, in words.
            loss: of the whole batch.
            squares: the sum of squares of each leaf of the final states.

        Returns:
            What the step's line of metrics says of it, and why the run is to stop, if it is.
        """
        place, history = self._place(loss, squares), self._history
        self._rows.intervention.load_state_dict(before)
        if self._then == "stop":
            return {"not_finite": place}, RunStopped(
                f"{self._phase} stopped at step {step}: {values}, not finite {place}; the weights are those before the "
                f"step, and {self._last_good()}; go on with `{self._command} --on-nonfinite skip`, or start a new run "
                "with a lower learning rate"
            )
        zeroed = self._forget(drawn, before)
        self._say(f"{self._phase}: step {step} is skipped: {values}, {place}{_zeroed(zeroed)}")
        told = {"not_finite": place, "zeroed_rows": zeroed}
        if history.skipped_in_a_row < MOST_SKIPPED_IN_A_ROW:
            return told, None
        return told, RunStopped(
            f"{self._phase} stopped at step {step}: {history.skipped_in_a_row} steps in a row were skipped, this one "
            f"for what is not finite {place}; {self._last_good()}; start a new run with a lower learning rate"
        )

    def ahead(self, drawn: int, before: Mapping[str, Value], squares: Sequence[float]) -> None:
        """The same where rows are read before the first step.

        Raises:
            RunStopped: the run is to stop at it.
        """
        place = self._place(0.0, squares)
        if self._then == "stop":
            raise RunStopped(
                f"{self._phase} stopped while it read ahead, in batch {drawn}: not finite {place}; nothing is trained "
                f"yet; go on with `{self._command} --on-nonfinite skip`, or start from another model"
            )
        self._rows.intervention.load_state_dict(before)
        zeroed = self._forget(drawn, before)
        self._say(f"{self._phase}: batch {drawn} is not read ahead: not finite {place}{_zeroed(zeroed)}")

    def _place(self, loss: float, squares: Sequence[float]) -> str:
        trained, processes = self._rows.trained, self._rows.processes
        return place_of_nonfinite(loss, squares, trained.spec, trained.module, processes)

    def _forget(self, drawn: int, before: Mapping[str, Value]) -> int:
        """Lets the rows at fault start from zero; how many, over all processes.

        Kept, such a state would make the next step the same, and every one after it.
        """
        intervention = self._rows.intervention
        rows = self._rows.at_fault(drawn)
        intervention.load_state_dict(before)
        zeroed = int(self._rows.processes.sum(torch.tensor(intervention.forget(rows))))
        self._history.zeroed_rows += zeroed
        return zeroed


def place_of_nonfinite(
    loss: float, squares: Sequence[float], spec: StateSpec, model: nn.Module, processes: Processes
) -> str:
    """Names what is not finite first: on the way forward a state leaf, else on the way back a gradient.

    A layer whose input is not finite has a final state that is not, so the first such leaf stands in or just after the
    layer where it began. All processes ask together.

    Args:
        loss: of the whole batch.
        squares: the sum of squares of each leaf of the final states.
        spec: names the leaves.
        model: with the gradients of the step, not clipped.
        processes: the gradients are sharded over, perhaps.
    """
    weights = _not_finite({name: parameter.detach() for name, parameter in model.named_parameters()}, processes)
    if weights:
        return f"the weight {weights[0]} is not finite"
    for leaf, value in zip(spec.leaves, squares, strict=True):
        if not math.isfinite(value):
            return f"first in the final state's leaf {leaf.path} ({leaf.role}), so in layer {leaf.layer} or its input"
    if not math.isfinite(loss):
        return "after the last layer: in the final norm, the head or the loss, for all final states are finite"
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    wrong = _not_finite(gradients, processes)
    if wrong:
        return f"first on the way back in the gradient of {wrong[-1]}, and in {len(wrong)} of {len(gradients)} in all"
    return "every gradient is finite by itself, but their norm overflows"


def _not_finite(tensors: dict[str, Tensor], processes: Processes) -> list[str]:
    """The names of those that hold something not finite on any process, in the model's order."""
    own = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors.values()]
    flags = torch.stack([(~torch.isfinite(tensor)).any() for tensor in own]).int()
    found = processes.sum(flags).tolist()
    return [name for name, flag in zip(tensors, found, strict=True) if flag]


def _zeroed(rows: int) -> str:
    return f"; {rows:,} rows start from zero next, for what they carried was at fault" if rows else ""
