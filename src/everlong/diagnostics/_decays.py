"""The decays that a model applies, seen by hook: one form for both recurrences.

A unit is what has a decay of its own: a head of Mamba-2 (K = 1), a key channel of GLA and RWKV-6, a channel's state
of Mamba-1. Its log-decay at a token is -age * rate: for gated linear attention the age is -log_decay and the rate 1,
for the selective scan the age is dt, shared by a channel's states, and the rate -A.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

THRESHOLDS = {"1/e": 1.0, "1 %": math.log(100)}


def ages_and_rates(inputs: dict[str, Any]) -> tuple[Float[Tensor, "B T H J"], Float[Tensor, "H J M"]]:
    """Ages by token and rates from a recurrence's named inputs; the head's units are K = J * M."""
    if "log_decay" in inputs:
        ages = -inputs["log_decay"].detach()
        ages = ages.unsqueeze(-1) if ages.ndim == 3 else ages
        return ages, torch.ones(*ages.shape[2:], 1, dtype=ages.dtype, device=ages.device)
    return inputs["dt"].detach().unsqueeze(-1), -inputs["A"].detach().unsqueeze(1)


class Decays:
    """Follows one layer's decays while documents are read side by side from their beginning.

    Attributes:
        horizons: [THRESHOLDS, B, H, K, writes], tokens until a write has fallen so far; infinite: not yet.
        in_context: [B, H, K], the sum of log-decays over the first ``context`` tokens.
        whole: [B, H, K], the sum over all tokens so far.
    """

    def __init__(self, context: int, writes: tuple[int, ...]):
        self.context, self.writes, self._read = context, writes, 0
        self.horizons = self.in_context = self.whole = torch.empty(0)

    def see(self, inputs: dict[str, Any]) -> None:
        """Takes the next piece of every document."""
        ages, rates = ages_and_rates(inputs)
        passed = ages.double().cumsum(1).permute(0, 2, 3, 1).contiguous()  # [B, H, J, T]
        batch, heads, groups, length = passed.shape
        if not self._read:
            shape = (batch, heads, groups * rates.shape[2])
            self._levels = passed.new_full(
                (*passed.shape[:3], rates.shape[2], len(THRESHOLDS), len(self.writes)), math.inf
            )
            self.horizons = passed.new_full((len(THRESHOLDS), *shape, len(self.writes)), math.inf)
            self.whole, self.in_context = passed.new_zeros(shape), passed.new_zeros(shape)
        self._follow(passed, rates.double())
        last = self.context - 1 - self._read
        if 0 <= last < length:
            self.in_context = self.whole - _by_unit(passed[..., last], rates)
        self.whole = self.whole - _by_unit(passed[..., -1], rates)
        self._read += length

    def _follow(self, passed: Tensor, rates: Tensor) -> None:
        """Finds the writes that fall below a threshold in this piece; ``_levels`` are ages, from the piece's start."""
        length = passed.shape[3]
        bounds = torch.tensor(list(THRESHOLDS.values()), dtype=passed.dtype, device=passed.device)
        for index, write in enumerate(self.writes):
            if 0 <= write - self._read < length:
                start = passed[..., write - self._read]
                self._levels[..., index] = start[..., None, None] + bounds / rates.unsqueeze(-1)
        at = torch.searchsorted(passed, self._levels.flatten(3).contiguous()).view(self._levels.shape)
        written = torch.tensor(self.writes, dtype=passed.dtype, device=passed.device)
        distance = torch.where(at < length, self._read + at - written, math.inf)
        distance = distance.flatten(2, 3).movedim(3, 0)  # [thresholds, B, H, K, writes]
        self.horizons = torch.minimum(self.horizons, distance)
        fallen = at < length
        self._levels = torch.where(fallen, math.inf, self._levels - passed[..., -1][..., None, None, None])


def _by_unit(age: Float[Tensor, "B H J"], rates: Float[Tensor, "H J M"]) -> Float[Tensor, "B H K"]:
    return (age.unsqueeze(-1) * rates.double()).flatten(2)
