"""Correlated noise: fitted to each element of a layer's state, and to the directions in which they vary together.

Ours, beyond the paper: Buitrago Ruiz & Gu's fitted noise (arXiv 2507.02782, Eqs. 5 and 6) has one mean and one variance
a head. Which of the element's mean, the element's variance and the correlations it lacks, the settings tell apart.
"""

import math
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from everlong.errors import EverlongError
from everlong.interventions._draws import FACTORS, normal, signs
from everlong.interventions._fitted import Fitted
from everlong.interventions._noise import recurrent, standard_noise
from everlong.interventions.config import CorrelatedNoiseConfig
from everlong.state import LeafSpec, RecurrentState, StateSpec

RIDGE = 1e-9  # of the mean diagonal: directions that a batch of few rows does not show stay at zero
ROUNDING = 4 * torch.finfo(torch.float64).eps  # of the square of the summed means: what taking them off leaves


class CorrelatedNoise(Fitted):
    """Each row starts, in each layer, from mu + F z + sqrt(d) e, with z and e iid N(0, 1): covariance F F^T + diag(d).

    mu [D] and v [D] are mean and variance of each of a layer's D elements, F is [D, r], and d = v - diag(F F^T): the
    variance of every element is v at every rank r, and only what varies together differs. r = 0 is noise of each
    element's own mean and variance.

    **How F is found.** The covariance C of a layer is never formed. With S, a fixed [D, r] matrix of random signs, the
    sketch Y = C S [D, r] is kept, and F = Y (S^T Y)^(-1/2), so that F F^T = C S (S^T C S)^(-1) S^T C: the Nystroem
    approximation of C from the sketch (Tropp, Yurtsever, Udell and Cevher 2017, arXiv 1706.05736), never above C and
    exact where C has no more than r directions. The memory is D (2 r + 4) numbers a layer, whatever was read.

    **Why it does not depend on the number of processes.** S is a function of the seed. Y is linear in C, hence the
    paper's running average of C is that of Y, and a batch's Y = mean(x (x^T S)) - mu (mu^T S) comes from sums over
    rows, which are added up over all processes before anything is made of them. (S^T Y)^(-1/2) is taken as the inverse
    of the Cholesky factor, which is unique and changes smoothly with Y: an eigenvector's free sign or turn would carry
    rounding over into the noise.

    With ``mean`` or ``variance`` "head", all elements of a head have the mean of their means or variances.
    """

    name: ClassVar[str] = "correlated_noise"
    data_order: ClassVar[Literal["any", "shuffled", "contiguous"]] = "any"

    def __init__(self, config: CorrelatedNoiseConfig | None = None, *, seed: int):
        self._settings = config or CorrelatedNoiseConfig()
        super().__init__(self._settings, seed=seed)
        self._signs: dict[int, Tensor] = {}  # S by the leaf's place among the recurrent ones: int8 [D, r]

    def sums(self, final_state: RecurrentState, counted: Bool[Tensor, " B"]) -> Float[Tensor, " N"]:
        """Of each layer: x, x^2 and x (x^T S), in float64, or the spread would drown in the mean."""
        parts = []
        for place, tensor in enumerate(t for leaf, t in final_state.items() if leaf.role == "recurrent"):
            x = tensor.flatten(1)[counted.to(tensor.device)].double()
            parts += [x.sum(0), x.square().sum(0), (x.T @ (x @ self._signs_of(place, x.shape[1], x.device))).flatten()]
        return torch.cat(parts).cpu()

    def moments(self, means: Float[Tensor, " N"], spec: StateSpec) -> dict[str, Tensor]:
        """Mean, variance and sketch of each layer."""
        rank, moments = self._settings.rank, {}
        sizes = [math.prod(leaf.shape) for leaf in recurrent(spec)]
        for place, of_leaf in enumerate(means.split([size * (2 + rank) for size in sizes])):
            mean, square, product = of_leaf.split([sizes[place], sizes[place], sizes[place] * rank])
            moments[f"{place}.mean"] = mean.clone()
            moments[f"{place}.variance"] = (square - mean.square()).clamp(min=0)
            if rank:
                centre = mean.outer(mean @ self._signs_of(place, len(mean), mean.device))
                moments[f"{place}.sketch"] = product.view(-1, rank) - centre
        return moments

    def noise(self, spec: StateSpec, step: int, rows: Int[Tensor, " B"], device: torch.device) -> RecurrentState:
        """Each layer's own."""
        noisy, rank = recurrent(spec), self._settings.rank
        fitted = [len(moment) for name, moment in self._moments.items() if name.endswith(".mean")]
        wanted = [math.prod(leaf.shape) for leaf in noisy]
        if fitted != wanted:
            raise EverlongError(f"the fitted moments are another model's: of {fitted} elements, this one has {wanted}")
        common = normal(self.seed, step, rows, rank * len(noisy), stream=FACTORS).double()
        leaves, place = [], 0
        for leaf, drawn in standard_noise(spec, self.seed, step, rows, device).items():
            if leaf.role == "recurrent":
                directions = common[:, place * rank : (place + 1) * rank].to(device)
                drawn, place = self._of_leaf(leaf, place, drawn, directions), place + 1
            leaves.append(drawn)
        return RecurrentState(spec, tuple(leaves))

    def _of_leaf(self, leaf: LeafSpec, place: int, drawn: Tensor, directions: Float[Tensor, "B r"]) -> Tensor:
        mean, variance = (self._moments[f"{place}.{name}"].to(drawn.device) for name in ("mean", "variance"))
        if self._settings.mean == "head":
            mean = _of_heads(mean, leaf)
        noise = mean.expand(len(drawn), -1)
        if self._settings.rank:
            factor = self._factor(place).to(drawn.device)
            noise = noise + directions @ factor.T
            variance = (variance - factor.square().sum(1)).clamp(min=0)
        if self._settings.variance == "head":
            variance = _of_heads(variance, leaf)
        if self._settings.variance != "none":
            noise = noise + variance.sqrt() * drawn.flatten(1).double()
        return noise.reshape(drawn.shape).to(drawn.dtype)

    def _factor(self, place: int) -> Float[Tensor, "D r"]:
        """F, with F F^T the Nystroem approximation of the layer's covariance."""
        sketch = self._moments[f"{place}.sketch"]
        core = self._signs_of(place, len(sketch), sketch.device).T @ sketch
        core = (core + core.T) / 2
        varies = core.diagonal().mean()
        rounding = ROUNDING * self._moments[f"{place}.mean"].abs().sum().square()
        if not varies > rounding:  # nothing does, that float64 can tell from the mean
            return torch.zeros_like(sketch)
        ridge = RIDGE * varies + rounding
        lower = torch.linalg.cholesky(core + ridge * torch.eye(len(core), dtype=core.dtype, device=core.device))
        return torch.linalg.solve_triangular(lower, sketch.T, upper=False).T

    def _signs_of(self, place: int, size: int, device: torch.device) -> Float[Tensor, "D r"]:
        """S of a layer, in float64."""
        rank = self._settings.rank
        if place not in self._signs:
            self._signs[place] = signs(self.seed, place, size * rank).view(size, rank)
        return self._signs[place].to(device, torch.float64)

    def summary(self) -> dict[str, Any]:
        """Of each layer: the mean's share of the second moment, and the share of the variance that varies together."""
        mean_shares, common_shares = [], []
        for place in range(sum(name.endswith(".mean") for name in self._moments)):
            mean, variance = self._moments[f"{place}.mean"], self._moments[f"{place}.variance"]
            spread = float(variance.sum())
            mean_shares.append(_share(float(mean.square().sum()), float(mean.square().sum()) + spread))
            if self._settings.rank:
                common_shares.append(_share(float(self._factor(place).square().sum()), spread))
        return {"mean_share_of_second_moment": mean_shares, "common_share_of_variance": common_shares}


def _of_heads(values: Float[Tensor, " D"], leaf: LeafSpec) -> Float[Tensor, " D"]:
    """The mean over each head, for each of its elements."""
    by_head = values.view(leaf.shape[0], -1)
    return by_head.mean(1, keepdim=True).expand_as(by_head).flatten()


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
