"""Truncated backpropagation through time (Buitrago Ruiz & Gu 2025, arXiv 2507.02782, section 4.5)."""

from typing import ClassVar, Literal

from jaxtyping import Bool, Int
from torch import Tensor

from everlong.interventions._carried import Carried
from everlong.interventions.config import ROLES, TBTTConfig


class TBTT(Carried):
    """Each row starts from the final state of the chunk before it in its own document; a document starts from zero.

    Of state passing it has the structure of the states, and beside it their true context. Row r of a batch must go on
    with row r of the batch before: the contiguous data order. The state is carried whole and detached, so a gradient
    goes back to the beginning of its row and no further. By split invariance, reading k chunks with the gradient left
    whole is reading one row of k chunks: the horizon of the gradient is the length of a row.
    """

    name: ClassVar[str] = "tbtt"
    data_order: ClassVar[Literal["any", "shuffled", "contiguous"]] = "contiguous"

    def __init__(self, config: TBTTConfig | None = None, *, seed: int):
        config = config or TBTTConfig()
        super().__init__(config, roles=ROLES, seed=seed)
        self.row_contexts = config.gradient_horizon_chunks

    def anew(self, starts: Bool[Tensor, " B"], step: int, rows: Int[Tensor, " B"]) -> Bool[Tensor, " B"]:
        """Rows that begin a document, and rows by chance."""
        return starts.cpu() | super().anew(starts, step, rows)
