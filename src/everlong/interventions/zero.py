"""The same-budget control: every row starts from the zero state."""

from typing import ClassVar, Literal

from jaxtyping import Bool, Int
from torch import Tensor

from everlong.interventions._protocol import Intervention
from everlong.interventions.config import InterventionConfig, ZeroConfig
from everlong.state import RecurrentState, StateSpec


class Zero(Intervention):
    """Ordinary training. The paper compares with the raw checkpoint only; here every repair has this control."""

    name: ClassVar[str] = "zero"
    data_order: ClassVar[Literal["any", "shuffled", "contiguous"]] = "any"

    def __init__(self, config: InterventionConfig | None = None, *, seed: int):
        super().__init__(config or ZeroConfig(), seed=seed)

    def initial_state(
        self, starts: Bool[Tensor, " B"], spec: StateSpec, step: int, rows: Int[Tensor, " B"]
    ) -> RecurrentState:
        """Zero, in every row."""
        return spec.zeros(len(rows), starts.device)

    def observe(self, final_state: RecurrentState, ages: Int[Tensor, " B"]) -> None:
        """Keeps nothing."""
