"""State passing (Buitrago Ruiz & Gu 2025, arXiv 2507.02782, section 4.4)."""

from typing import ClassVar, Literal

from jaxtyping import Bool, Int
from torch import Tensor

from everlong.interventions._carried import Carried
from everlong.interventions._draws import uniform
from everlong.interventions.config import StatePassingConfig


class StatePassing(Carried):
    """Each row starts from the final state of the row in its place in the previous, shuffled and unrelated batch.

    The state is detached, and zeroed with ``reset_probability``, drawn for each row and step; the first step starts
    from zero. So training meets states as old as they come when a model reads on, though its rows stay short.
    """

    name: ClassVar[str] = "state_passing"
    data_order: ClassVar[Literal["any", "shuffled", "contiguous"]] = "shuffled"

    def __init__(self, config: StatePassingConfig | None = None, *, seed: int):
        config = config or StatePassingConfig()
        super().__init__(config, roles=config.passed_roles, seed=seed)
        self._reset_probability = config.reset_probability

    def anew(self, starts: Bool[Tensor, " B"], step: int, rows: Int[Tensor, " B"]) -> Bool[Tensor, " B"]:
        """Rows by chance. Where a row begins in its document does not matter here."""
        return uniform(self.seed, step, rows) < self._reset_probability
