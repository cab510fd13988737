"""State passing (Buitrago Ruiz & Gu 2025, arXiv 2507.02782)."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from everlong.interventions._draws import check_seed, uniform
from everlong.interventions._protocol import Intervention, Value
from everlong.interventions._slots import Slots
from everlong.interventions.config import StatePassingConfig
from everlong.state import RecurrentState, StateSpec


class StatePassing(Intervention):
    """Each row starts from the final state of the row in its place in the previous, shuffled and unrelated batch.

    The state is detached, and zeroed with ``reset_probability``, drawn for each row and step; the first step starts
    from zero. So training meets states as old as they come when a model reads on, though its rows stay short.
    """

    name: ClassVar[str] = "state_passing"
    data_order: ClassVar[Literal["any", "shuffled", "contiguous"]] = "shuffled"

    def __init__(self, config: StatePassingConfig | None = None, *, seed: int):
        config = config or StatePassingConfig()
        super().__init__(config, seed=check_seed(seed))
        self._reset_probability = config.reset_probability
        self._passes_recurrent = "recurrent" in config.passed_roles
        self._slots = Slots(config.passed_roles)
        self._rows = self._ages = torch.empty(0, dtype=torch.int64)  # of the rows that were started last

    def initial_state(
        self, starts: Bool[Tensor, " B"], spec: StateSpec, step: int, rows: Int[Tensor, " B"]
    ) -> RecurrentState:
        """The carried states, some of them zeroed. Where a row begins in its document does not matter here."""
        state, ages = self._slots.take(spec, rows, starts.device)
        zeroed = uniform(self.seed, step, rows) < self._reset_probability
        if zeroed.any():
            ages = ages.masked_fill(zeroed, 0)
            anew = zeroed.nonzero().squeeze(1).to(starts.device)
            state = state.map(lambda leaf: leaf.index_fill(0, anew, 0))  # several times as fast as state.reset
        self._rows, self._ages = rows, ages
        return state

    def observe(self, final_state: RecurrentState, ages: Int[Tensor, " B"]) -> None:
        """Keeps the final states for the next step. A recurrent state that is not passed is new in every row: age 0."""
        self._slots.put(self._rows, final_state, ages if self._passes_recurrent else torch.zeros_like(ages))

    def ages(self, rows: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Tokens since the state was zero, at the start of each row that ``initial_state`` started last."""
        assert torch.equal(rows, self._rows), "ages are those of the rows that were started last"
        return self._ages

    def state_dict(self) -> dict[str, Value]:
        """The carried states and their ages."""
        return self._slots.state_dict()

    def load_state_dict(self, values: Mapping[str, Value]) -> None:
        """Goes on from where ``state_dict`` was taken."""
        self._slots.load_state_dict(values)
