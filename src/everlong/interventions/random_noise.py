"""Random noise (Buitrago Ruiz & Gu 2025, arXiv 2507.02782, section 4.2)."""

from typing import ClassVar, Literal

from jaxtyping import Bool, Int
from torch import Tensor

from everlong.interventions._draws import check_seed
from everlong.interventions._noise import standard_noise, zero_starts
from everlong.interventions._protocol import Intervention
from everlong.interventions.config import RandomNoiseConfig
from everlong.state import RecurrentState, StateSpec


class RandomNoise(Intervention):
    """Each row starts from iid N(0, scale^2) in every recurrent leaf, one scale for all layers and heads.

    The first step, too. Nothing was read into such a state, so its age is zero, and exposure counts no older ones.
    """

    name: ClassVar[str] = "random_noise"
    data_order: ClassVar[Literal["any", "shuffled", "contiguous"]] = "any"

    def __init__(self, config: RandomNoiseConfig | None = None, *, seed: int):
        config = config or RandomNoiseConfig()
        super().__init__(config, seed=check_seed(seed))
        self._scale, self._zero_share = config.scale, config.zero_share

    def initial_state(
        self, starts: Bool[Tensor, " B"], spec: StateSpec, step: int, rows: Int[Tensor, " B"]
    ) -> RecurrentState:
        """Noise. Where a row begins in its document does not matter here."""
        noise = standard_noise(spec, self.seed, step, rows, starts.device)
        zeroed = zero_starts(self.seed, step, rows, self._zero_share).to(starts.device)
        return noise.map(lambda leaf: leaf * self._scale).reset(zeroed)

    def observe(self, final_state: RecurrentState, ages: Int[Tensor, " B"]) -> None:
        """Keeps nothing."""
