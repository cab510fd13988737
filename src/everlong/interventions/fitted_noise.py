"""Fitted noise (Buitrago Ruiz & Gu 2025, arXiv 2507.02782, section 4.3, Eqs. 5 and 6)."""

from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from everlong.errors import EverlongError
from everlong.interventions._fitted import Fitted
from everlong.interventions._noise import recurrent, standard_noise
from everlong.interventions.config import FittedNoiseConfig
from everlong.state import RecurrentState, StateSpec


class FittedNoise(Fitted):
    """Each row starts from iid N(mu, sigma^2), with a mu and a sigma^2 for each layer l and head i.

        mu_li      <- (1 - b) Mean(h_T) + b mu_li          (5)
        sigma_li^2 <- (1 - b) Var(h_T)  + b sigma_li^2     (6)

    Mean and (biased) variance are over the batch and all of the head's elements, its key and its value dimensions. A
    head is what the first axis of a recurrent leaf counts: of Mamba-1, whose channels are recurrences of their own, a
    channel with its N states.
    """

    name: ClassVar[str] = "fitted_noise"
    data_order: ClassVar[Literal["any", "shuffled", "contiguous"]] = "any"

    def __init__(self, config: FittedNoiseConfig | None = None, *, seed: int):
        super().__init__(config or FittedNoiseConfig(), seed=seed)

    def sums(self, final_state: RecurrentState, counted: Bool[Tensor, " B"]) -> Float[Tensor, " N"]:
        """Means and mean squares of the heads of all layers, in the order of the leaves."""
        means, variances = [], []
        for leaf, tensor in final_state.items():
            if leaf.role == "recurrent":
                variance, mean = torch.var_mean(tensor.flatten(2), dim=2, correction=0)  # [B, H]
                means.append(mean)
                variances.append(variance)
        mean, variance = torch.cat([*means, *variances], dim=1).cpu().double().chunk(2, dim=1)
        of_rows = torch.cat([mean, variance + mean.square()], dim=1)  # in float64, or the spread drowns in the mean
        return counted.double() @ of_rows

    def moments(self, means: Float[Tensor, " N"], spec: StateSpec) -> dict[str, Tensor]:
        """Mean and variance of each head, over rows and elements."""
        mean, square = means.chunk(2)
        return {"mean": mean, "variance": (square - mean.square()).clamp(min=0)}

    def noise(self, spec: StateSpec, step: int, rows: Int[Tensor, " B"], device: torch.device) -> RecurrentState:
        """Each head's own."""
        mean, deviation = self._moments["mean"], self._moments["variance"].sqrt()
        noisy = recurrent(spec)
        heads = [leaf.shape[0] for leaf in noisy]
        if sum(heads) != len(mean):
            raise EverlongError(
                f"the fitted moments are another model's: of {len(mean)} heads, this one has {sum(heads)}"
            )
        of_leaf = dict(zip(noisy, zip(mean.split(heads), deviation.split(heads), strict=True), strict=True))
        leaves = []
        for leaf, drawn in standard_noise(spec, self.seed, step, rows, device).items():
            if leaf in of_leaf:
                centre, width = (_of_head(value, drawn) for value in of_leaf[leaf])
                drawn = centre + width * drawn
            leaves.append(drawn)
        return RecurrentState(spec, tuple(leaves))

    def summary(self) -> dict[str, Any]:
        """The moments of the last step."""
        if not self._moments:
            return {}
        deviations = self._moments["variance"].sqrt()
        return {"head_means": self._moments["mean"].tolist(), "head_deviations": deviations.tolist()}


def _of_head(values: Float[Tensor, " H"], leaf: Tensor) -> Tensor:
    """One value a head, to be broadcast over a leaf [B, H, ...]."""
    return values.to(leaf.dtype).to(leaf.device).view(-1, *[1] * (leaf.ndim - 2))
