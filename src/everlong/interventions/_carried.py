"""What state passing and TBTT share: rows start from final states that were carried over."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from everlong.interventions._mixture import Mixed
from everlong.interventions._protocol import Value
from everlong.interventions._slots import Slots
from everlong.interventions.config import CarriedConfig
from everlong.state import RecurrentState, StateSpec


class Carried(Mixed):
    """Each row starts from the detached final state of the row in its place in the previous batch.

    Args:
        config: its settings.
        roles: the roles of the leaves that are carried; the others start from zero.
        seed: of its draws, 0 or more.
    """

    def __init__(self, config: CarriedConfig, *, roles: Iterable[str], seed: int):
        super().__init__(config, seed=seed)
        self.prefill_steps = config.prefill_steps
        roles = tuple(roles)
        self._passes_recurrent = "recurrent" in roles
        self._slots = Slots(roles)

    def begin(
        self, starts: Bool[Tensor, " B"], spec: StateSpec, step: int, rows: Int[Tensor, " B"]
    ) -> tuple[RecurrentState, Int[Tensor, " B"]]:
        """The carried states."""
        return self._slots.take(spec, rows, starts.device)

    def observe(self, final_state: RecurrentState, ages: Int[Tensor, " B"]) -> None:
        """Keeps the final states for the next step. A recurrent state that is not passed is new in every row: age 0."""
        self._slots.put(self._rows, final_state, ages if self._passes_recurrent else torch.zeros_like(ages))

    def forget(self, rows: Int[Tensor, " B"]) -> int:
        """Rows carry zero then."""
        return self._slots.forget(rows)

    def summary(self) -> dict[str, Any]:
        """How old the states are that would be passed on."""
        ages = self._slots.ages(self.sum_over_processes)
        return {"oldest_state": int(ages.max()), "mean_state_age": float(ages.double().mean())} if len(ages) else {}

    def state_dict(self) -> dict[str, Value]:
        """The carried states and their ages."""
        return self._slots.state_dict()

    def load_state_dict(self, values: Mapping[str, Value]) -> None:
        """Goes on from where ``state_dict`` was taken."""
        self._slots.load_state_dict(values)

    def regrouped(self, parts: Sequence[Mapping[str, Value]], rows: Int[Tensor, " B"]) -> Mapping[str, Value] | None:
        """Each row's state goes to the process that has the row now."""
        return self._slots.regrouped(parts, rows)
