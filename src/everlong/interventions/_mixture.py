"""The mixture of a method and zero starts: what every method shares that starts rows from something else than zero."""

from abc import abstractmethod

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from everlong.interventions._draws import check_seed, uniform
from everlong.interventions._protocol import Intervention
from everlong.interventions.config import MixedConfig
from everlong.state import RecurrentState, StateSpec


class Mixed(Intervention):
    """Rows start as the method begins them, but for some, drawn for each row and step, that start from zero.

    With one seed, the same rows start from zero under every method.

    Args:
        config: its settings.
        seed: of its draws, 0 or more.
    """

    def __init__(self, config: MixedConfig, *, seed: int):
        super().__init__(config, seed=check_seed(seed))
        self._reset_probability = config.reset_probability
        self._rows = self._ages = torch.empty(0, dtype=torch.int64)  # of the rows that were started last
        self._zeroed = torch.empty(0, dtype=torch.bool)  # those of them that start from zero all the same

    @abstractmethod
    def begin(
        self, starts: Bool[Tensor, " B"], spec: StateSpec, step: int, rows: Int[Tensor, " B"]
    ) -> tuple[RecurrentState, Int[Tensor, " B"]]:
        """The states that the method starts rows from, and their ages (on the CPU); arguments as ``initial_state``."""

    def anew(self, starts: Bool[Tensor, " B"], step: int, rows: Int[Tensor, " B"]) -> Bool[Tensor, " B"]:
        """The rows that start from zero all the same, on the CPU: rows by chance."""
        return uniform(self.seed, step, rows) < self._reset_probability

    def initial_state(
        self, starts: Bool[Tensor, " B"], spec: StateSpec, step: int, rows: Int[Tensor, " B"]
    ) -> RecurrentState:
        """What the method begins with, some rows zeroed."""
        state, ages = self.begin(starts, spec, step, rows)
        zeroed = self.anew(starts, step, rows)
        if zeroed.any():
            ages = ages.masked_fill(zeroed, 0)
            index = zeroed.nonzero().squeeze(1).to(starts.device)
            state = state.map(lambda leaf: leaf.index_fill(0, index, 0))  # several times as fast as state.reset
        self._rows, self._ages, self._zeroed = rows, ages, zeroed
        return state

    def ages(self, rows: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
        """Tokens since the state was zero, at the start of each row that ``initial_state`` started last."""
        assert torch.equal(rows, self._rows), "ages are those of the rows that were started last"
        return self._ages

    def zero_starts(self) -> int:
        """Of the rows that ``initial_state`` started last: those by chance, and by TBTT where documents begin."""
        return int(self._zeroed.sum())


def new(rows: Int[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Ages of states that no token was read into: zero, on the CPU."""
    return torch.zeros(len(rows), dtype=torch.int64)
