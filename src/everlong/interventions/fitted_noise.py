"""Fitted noise (Buitrago Ruiz & Gu 2025, arXiv 2507.02782, section 4.3, Eqs. 5 and 6)."""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from everlong.errors import EverlongError
from everlong.interventions._draws import check_seed
from everlong.interventions._noise import recurrent, standard_noise, zero_starts
from everlong.interventions._protocol import Intervention, Value
from everlong.interventions.config import FittedNoiseConfig
from everlong.state import RecurrentState, StateSpec

NOTHING = torch.empty(0, dtype=torch.float64)


class FittedNoise(Intervention):
    """Each row starts from iid N(mu, sigma^2), with a mu and a sigma^2 for each layer l and head i.

        mu_li      <- (1 - b) Mean(h_T) + b mu_li          (5)
        sigma_li^2 <- (1 - b) Var(h_T)  + b sigma_li^2     (6)

    Mean and (biased) variance are over the batch and all of the head's elements, its key and its value dimensions. A
    head is what the first axis of a recurrent leaf counts: of Mamba-1, whose channels are recurrences of their own, a
    channel with its N states. h_T are the final states of the rows that noise has started: the noise of one step is
    read on from in the next, so the moments climb. The first step starts from zero and its moments are taken as they
    are. Moments change between steps, when all parts of a batch were observed, and are summed over all processes.
    Nothing was read into a state of noise, so its age is zero, and exposure counts no older ones.
    """

    name: ClassVar[str] = "fitted_noise"
    data_order: ClassVar[Literal["any", "shuffled", "contiguous"]] = "any"

    def __init__(self, config: FittedNoiseConfig | None = None, *, seed: int):
        config = config or FittedNoiseConfig()
        super().__init__(config, seed=check_seed(seed))
        self._history, self._zero_share = config.history_weight, config.zero_share
        self._mean = self._variance = NOTHING  # [heads of all layers, in the order of the leaves]
        self._sums = NOTHING  # of the step that is being observed: rows, means and mean squares of each row and head
        self._step = -1  # the step that was started last
        self._counted = torch.empty(0, dtype=torch.bool)  # rows that were started last and count

    def initial_state(
        self, starts: Bool[Tensor, " B"], spec: StateSpec, step: int, rows: Int[Tensor, " B"]
    ) -> RecurrentState:
        """Noise of the moments so far. Where a row begins in its document does not matter here."""
        if step != self._step:
            self._fold()
            self._step = step
        if not len(self._mean):
            self._counted = torch.ones(len(rows), dtype=torch.bool)
            return spec.zeros(len(rows), starts.device)
        zeroed = zero_starts(self.seed, step, rows, self._zero_share)
        self._counted = ~zeroed
        noisy = recurrent(spec)
        heads = [leaf.shape[0] for leaf in noisy]
        if sum(heads) != len(self._mean):
            raise EverlongError(
                f"the fitted moments are another model's: of {len(self._mean)} heads, this one has {sum(heads)}"
            )
        moments = zip(self._mean.split(heads), self._variance.sqrt().split(heads), strict=True)
        of_leaf = dict(zip(noisy, moments, strict=True))
        noise = standard_noise(spec, self.seed, step, rows, starts.device)
        leaves = []
        for leaf, drawn in noise.items():
            if leaf in of_leaf:
                mean, deviation = (_of_head(value, drawn) for value in of_leaf[leaf])
                drawn = mean + deviation * drawn
            leaves.append(drawn)
        return RecurrentState(spec, tuple(leaves)).reset(zeroed.to(starts.device))

    def observe(self, final_state: RecurrentState, ages: Int[Tensor, " B"]) -> None:
        """Adds the moments of these rows to those of the step."""
        means, variances = [], []
        for leaf, tensor in final_state.items():
            if leaf.role == "recurrent":
                variance, mean = torch.var_mean(tensor.detach().flatten(2), dim=2, correction=0)  # [B, H]
                means.append(mean)
                variances.append(variance)
        mean, variance = torch.cat([*means, *variances], dim=1).cpu().double().chunk(2, dim=1)
        of_rows = torch.cat([mean, variance + mean.square()], dim=1)  # in float64, or the spread drowns in the mean
        counted = self._counted.double()
        sums = torch.cat([counted.sum().view(1), counted @ of_rows])
        self._sums = self._sums + sums if len(self._sums) else sums

    def _fold(self) -> None:
        """Eqs. 5 and 6, with what the step before has shown, on all processes together."""
        if not len(self._sums):
            return
        sums = self.sum_over_processes(self._sums)
        self._sums = NOTHING
        if not sums[0]:  # every row started from zero
            return
        mean, square = (sums[1:] / sums[0]).chunk(2)
        variance = (square - mean.square()).clamp(min=0)
        b = self._history if len(self._mean) else 0.0
        self._mean = (1 - b) * mean + b * self._mean if b else mean
        self._variance = (1 - b) * variance + b * self._variance if b else variance

    def state_dict(self) -> dict[str, Value]:
        """The moments, and the sums of the step that was observed last: on several processes, those of this one."""
        return {"mean": self._mean, "variance": self._variance, "sums": self._sums, "step": self._step}

    def load_state_dict(self, values: Mapping[str, Value]) -> None:
        """Goes on from where ``state_dict`` was taken."""
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        self._mean, self._variance, self._sums = tensors["mean"], tensors["variance"], tensors["sums"]
        self._step = int(values["step"])

    def regrouped(self, parts: Sequence[Mapping[str, Value]], rows: Int[Tensor, " B"]) -> Mapping[str, Value] | None:
        """The moments, which all processes share, and the sums of all: n processes that have them have their means."""
        return {**parts[0], "sums": torch.stack([torch.as_tensor(part["sums"]) for part in parts]).sum(0)}


def _of_head(values: Float[Tensor, " H"], leaf: Tensor) -> Tensor:
    """One value a head, to be broadcast over a leaf [B, H, ...]."""
    return values.to(leaf.dtype).to(leaf.device).view(-1, *[1] * (leaf.ndim - 2))
