"""State passing (Buitrago Ruiz & Gu 2025, arXiv 2507.02782, section 4.4), and the ladder from it down to noise."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from everlong.interventions._carried import Carried
from everlong.interventions._mixture import new
from everlong.interventions._permuted import permuted
from everlong.interventions.config import Permuted, StatePassingConfig
from everlong.state import RecurrentState, StateSpec


class StatePassing(Carried):
    """Each row starts from the final state of the row in its place in the previous, shuffled and unrelated batch.

    The state is detached, and zeroed with ``reset_probability``, drawn for each row and step; the first step starts
    from zero. So training meets states as old as they come when a model reads on, though its rows stay short.

    With ``permuted``, each layer, head, channel or element of the state comes from another row than the rest. A row's
    state is then made of parts of all ages in the batch, of which the mean is counted; every process holds the states
    of the whole batch for a step.
    """

    name: ClassVar[str] = "state_passing"
    data_order: ClassVar[Literal["any", "shuffled", "contiguous"]] = "shuffled"

    def __init__(self, config: StatePassingConfig | None = None, *, seed: int):
        config = config or StatePassingConfig()
        super().__init__(config, roles=config.passed_roles, seed=seed)
        self._permuted: Permuted = config.permuted
        self._step = -1  # the step that was started last, and all rows' states before it
        self._all: tuple[RecurrentState, Int[Tensor, " B"]] | None = None

    def begin(
        self, starts: Bool[Tensor, " B"], spec: StateSpec, step: int, rows: Int[Tensor, " B"]
    ) -> tuple[RecurrentState, Int[Tensor, " B"]]:
        """The carried states, permuted or whole. Where a row begins in its document does not matter here."""
        if self._permuted == "none":
            return super().begin(starts, spec, step, rows)
        if step != self._step:
            self._all = self._slots.everywhere(spec, starts.device, self.sum_over_processes)
            self._step = step
        if self._all is None:
            return spec.zeros(len(rows), starts.device), new(rows)
        states, ages = self._all
        mean_age = int(ages.double().mean().round())
        return permuted(states, rows, self._permuted, self.seed, step), torch.full((len(rows),), mean_age)

    def forget(self, rows: Int[Tensor, " B"]) -> int:
        """Rows carry zero then; all rows, where what they started from was made of the parts of all."""
        if self._permuted != "none" and len(rows):
            rows = self._slots.rows
        return super().forget(rows)
