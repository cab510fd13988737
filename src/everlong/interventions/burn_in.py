"""A cheap rival of the repairs: before each row, read some of what stands before it, without loss."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from everlong.interventions._draws import turns
from everlong.interventions._mixture import Mixed, new
from everlong.interventions.config import BurnInConfig
from everlong.state import RecurrentState, StateSpec


class BurnIn(Mixed):
    """Each row reads a prefix of its own document first, from the zero state and without loss.

    The prefix is 0 to ``longest_prefix`` tokens long, drawn for each row and step, and ends where the scored tokens
    begin: the row holds the longest, and starts from zero anew where its own begins. So rows meet true states of their
    document that are up to ``longest_prefix`` tokens old, at the price of reading them: tokens read beside the budget.
    """

    name: ClassVar[str] = "burn_in"
    data_order: ClassVar[Literal["any", "shuffled", "contiguous"]] = "any"

    def __init__(self, config: BurnInConfig | None = None, *, seed: int):
        config = config or BurnInConfig()
        super().__init__(config, seed=seed)
        self.unscored_prefix, self.prefix_gradient = config.longest_prefix, config.gradient

    def begin(
        self, starts: Bool[Tensor, " B"], spec: StateSpec, step: int, rows: Int[Tensor, " B"]
    ) -> tuple[RecurrentState, Int[Tensor, " B"]]:
        """Zero, in every row: what is met, the prefix brings."""
        return spec.zeros(len(rows), starts.device), new(rows)

    def resets(self, step: int, rows: Int[Tensor, " B"], length: int) -> Bool[Tensor, "B T"]:
        """True where a row's own prefix begins; rows that start from zero all the same have none."""
        longest = self.unscored_prefix
        last = int(rows.max())
        own = turns(self.seed, step, 0, last + 1, longest + 1)[rows]
        own = own.masked_fill(self.anew(rows < 0, step, rows), 0)
        return torch.arange(length) == (longest - own).unsqueeze(1)

    def observe(self, final_state: RecurrentState, ages: Int[Tensor, " B"]) -> None:
        """Keeps nothing."""
