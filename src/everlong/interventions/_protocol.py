"""What every intervention is. It knows states and plain tensors, never models or batches."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from everlong.errors import EverlongError
from everlong.interventions.config import InterventionConfig
from everlong.state import RecurrentState, StateSpec

Value = Tensor | int | float | str


class Intervention(ABC):
    """Decides what the state is at the start of each training row; evaluation always starts from zero.

    Every step, and for each part of its rows, the loop calls ``resets``, ``initial_state``, then ``ages``, and after
    the backward pass ``observe``; where it leaves a step out, it gives back the ``state_dict`` from before. What is
    drawn is a function of (seed, step, global row), so that any number of processes, and any resume, gives the same
    run. docs/own-loop.md shows the calls in a loop of one's own.

    Args:
        config: its settings.
        seed: of its draws, 0 or more.

    Attributes:
        name: its name in the registry and in records.
        data_order: the data order that it needs: "any", "shuffled" or "contiguous".
        row_contexts: training contexts in a row; the rows of a step are so many times fewer.
        unscored_prefix: tokens at the start of a row that are read without loss.
        prefix_gradient: whether a gradient goes back into that prefix.
        prefill_steps: steps whose rows are read before the first, as it has them read but without loss; training then
            goes on with the batches, and the steps of its draws, after these.
        sum_over_processes: gives the sum of a tensor over all processes, for statistics that are fitted to a batch.
            Whoever trains on several processes sets it to an all-reduce; alone, a process has the sum itself. It is
            called in ``initial_state``, when a step is started first, and in ``summary``, equally often on every
            process.
    """

    name: ClassVar[str]
    data_order: ClassVar[Literal["any", "shuffled", "contiguous"]]
    row_contexts: int = 1
    unscored_prefix: int = 0
    prefix_gradient: bool = True
    prefill_steps: int = 0

    def __init__(self, config: InterventionConfig, *, seed: int):
        self.config, self.seed = config, seed
        self.sum_over_processes: Callable[[Tensor], Tensor] = lambda tensor: tensor

    def row_length(self, context: int) -> int:
        """Tokens that a row must have for a training context of ``context`` tokens."""
        return self.row_contexts * context + self.unscored_prefix

    def row_count(self, batch_size: int) -> int:
        """Rows of a step that score as many tokens as ``batch_size`` rows of one training context each.

        Raises:
            EverlongError: they do not come out whole.
        """
        if batch_size % self.row_contexts:
            raise EverlongError(
                f"{self.name} reads rows of {self.row_contexts} training contexts: --batch-size {batch_size} must be a "
                f"multiple of {self.row_contexts}"
            )
        return batch_size // self.row_contexts

    def resets(self, step: int, rows: Int[Tensor, " B"], length: int) -> Bool[Tensor, "B T"] | None:
        """True at tokens inside a row at which it starts from zero anew; on the CPU. None: it does so nowhere.

        Args:
            step: the step, counted from 0.
            rows: each row's place in the whole batch over all processes, on the CPU.
            length: T, tokens a row.
        """
        return None

    @abstractmethod
    def initial_state(
        self, starts: Bool[Tensor, " B"], spec: StateSpec, step: int, rows: Int[Tensor, " B"]
    ) -> RecurrentState:
        """The state that each row starts from, without a graph.

        Args:
            starts: True where a row begins at its document's first token; on the device that the state is wanted on.
            spec: the leaves of the model's state.
            step: the step, counted from 0.
            rows: each row's place in the whole batch over all processes, on the CPU.
        """

    @abstractmethod
    def observe(self, final_state: RecurrentState, ages: Int[Tensor, " B"]) -> None:
        """Takes note of the state after the rows that ``initial_state`` started last; it is detached here.

        Args:
            final_state: the state after each row's last token.
            ages: tokens since each of these states was zero, on the CPU.
        """

    def forget(self, rows: Int[Tensor, " B"]) -> int:
        """Lets rows start from zero at the next step whatever they carry: it made a step that is not finite.

        Args:
            rows: places in the whole batch over all processes, on the CPU.

        Returns:
            How many rows of this process that is; of what carries nothing from row to row none.
        """
        return 0

    def ages(self, rows: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Tokens since the state was zero, at the start of each row that ``initial_state`` started last; on the CPU."""
        return torch.zeros(len(rows), dtype=torch.int64)

    def zero_starts(self) -> int:
        """How many of the rows that ``initial_state`` started last start from zero where the method would not."""
        return 0

    def summary(self) -> dict[str, Any]:
        """What it did over all processes, which call it together, in numbers, for the record.

        They are those of the last step where they change from step to step.
        """
        return {}

    def state_dict(self) -> dict[str, Value]:
        """Everything that a resume needs, flat; nothing that a constructor is given; never changed in place later."""
        return {}

    def load_state_dict(self, values: Mapping[str, Value]) -> None:
        """Goes on from where ``state_dict`` was taken."""
        assert not values, f"{self.name} keeps nothing, but was given {sorted(values)}"

    def regrouped(self, parts: Sequence[Mapping[str, Value]], rows: Int[Tensor, " B"]) -> Mapping[str, Value] | None:
        """What one of another number of processes goes on from; None: it has to begin anew.

        Args:
            parts: the ``state_dict`` of each process that there was, in order.
            rows: the global rows that this process has from now on, on the CPU.
        """
        same = all(_equal(part, parts[0]) for part in parts)
        return parts[0] if same else None

    def settings(self) -> dict[str, Any]:
        """What it was set to, for records."""
        return {"method": self.name, "data_order": self.data_order, "seed": self.seed, **asdict(self.config)}


def _equal(one: Mapping[str, Value], other: Mapping[str, Value]) -> bool:
    return one.keys() == other.keys() and all(
        torch.equal(torch.as_tensor(value), torch.as_tensor(other[name]))
        if not isinstance(value, str)
        else value == other[name]
        for name, value in one.items()
    )
