"""Random noise (Buitrago Ruiz & Gu 2025, arXiv 2507.02782, section 4.2)."""

from typing import ClassVar, Literal

from jaxtyping import Bool, Int
from torch import Tensor

from everlong.interventions._mixture import Mixed, new
from everlong.interventions._noise import standard_noise
from everlong.interventions.config import RandomNoiseConfig
from everlong.state import RecurrentState, StateSpec


class RandomNoise(Mixed):
    """Each row starts from iid N(0, scale^2) in every recurrent leaf, one scale for all layers and heads.

    The first step, too. Nothing was read into such a state, so its age is zero, and exposure counts no older ones.
    """

    name: ClassVar[str] = "random_noise"
    data_order: ClassVar[Literal["any", "shuffled", "contiguous"]] = "any"

    def __init__(self, config: RandomNoiseConfig | None = None, *, seed: int):
        config = config or RandomNoiseConfig()
        super().__init__(config, seed=seed)
        self._scale = config.scale

    def begin(
        self, starts: Bool[Tensor, " B"], spec: StateSpec, step: int, rows: Int[Tensor, " B"]
    ) -> tuple[RecurrentState, Int[Tensor, " B"]]:
        """Noise. Where a row begins in its document does not matter here."""
        noise = standard_noise(spec, self.seed, step, rows, starts.device)
        return noise.map(lambda leaf: leaf * self._scale), new(rows)

    def observe(self, final_state: RecurrentState, ages: Int[Tensor, " B"]) -> None:
        """Keeps nothing."""
