"""Truncated backpropagation through time (Buitrago Ruiz & Gu 2025, arXiv 2507.02782, section 4.5)."""

from typing import Any, ClassVar, Literal

from jaxtyping import Bool, Int
from torch import Tensor

from everlong.interventions._carried import Carried
from everlong.interventions._draws import uniform
from everlong.interventions.config import ROLES, TBTTConfig


class TBTT(Carried):
    """Each row starts from the final state of the chunk before it in its own document; a document starts from zero.

    Of state passing it has the structure of the states, and beside it their true context. Row r of a batch must go on
    with row r of the batch before: the contiguous data order. The state is carried whole and detached, so a gradient
    goes back to the beginning of its chunk and no further.
    """

    name: ClassVar[str] = "tbtt"
    data_order: ClassVar[Literal["any", "shuffled", "contiguous"]] = "contiguous"

    def __init__(self, config: TBTTConfig | None = None, *, seed: int):
        config = config or TBTTConfig()
        super().__init__(config, roles=ROLES, seed=seed)
        self._reset_probability = config.reset_probability

    def anew(self, starts: Bool[Tensor, " B"], step: int, rows: Int[Tensor, " B"]) -> Bool[Tensor, " B"]:
        """Rows that begin a document, and rows by chance."""
        return starts.cpu() | (uniform(self.seed, step, rows) < self._reset_probability)

    def settings(self) -> dict[str, Any]:
        """What it was set to, and how far a gradient goes back: one chunk, that is, one row."""
        return {**super().settings(), "gradient_horizon_chunks": 1}
