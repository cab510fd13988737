"""What state passing and TBTT share: rows start from final states that were carried over, some of them zeroed."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from everlong.interventions._draws import check_seed
from everlong.interventions._protocol import Intervention, Value
from everlong.interventions._slots import Slots
from everlong.interventions.config import InterventionConfig
from everlong.state import RecurrentState, StateSpec


class Carried(Intervention):
    """Each row starts from the detached final state of the row in its place in the previous batch.

    Args:
        config: its settings.
        roles: the roles of the leaves that are carried; the others start from zero.
        seed: of its draws, 0 or more.
    """

    def __init__(self, config: InterventionConfig, *, roles: Iterable[str], seed: int):
        super().__init__(config, seed=check_seed(seed))
        roles = tuple(roles)
        self._passes_recurrent = "recurrent" in roles
        self._slots = Slots(roles)
        self._rows = self._ages = torch.empty(0, dtype=torch.int64)  # of the rows that were started last

    @abstractmethod
    def anew(self, starts: Bool[Tensor, " B"], step: int, rows: Int[Tensor, " B"]) -> Bool[Tensor, " B"]:
        """The rows that start from zero, on the CPU; the arguments are those of ``initial_state``."""

    def initial_state(
        self, starts: Bool[Tensor, " B"], spec: StateSpec, step: int, rows: Int[Tensor, " B"]
    ) -> RecurrentState:
        """The carried states, some of them zeroed."""
        state, ages = self._slots.take(spec, rows, starts.device)
        zeroed = self.anew(starts, step, rows)
        if zeroed.any():
            ages = ages.masked_fill(zeroed, 0)
            index = zeroed.nonzero().squeeze(1).to(starts.device)
            state = state.map(lambda leaf: leaf.index_fill(0, index, 0))  # several times as fast as state.reset
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

    def regrouped(self, parts: Sequence[Mapping[str, Value]], rows: Int[Tensor, " B"]) -> Mapping[str, Value] | None:
        """Each row's state goes to the process that has the row now."""
        return self._slots.regrouped(parts, rows)
