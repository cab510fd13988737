"""What the noise methods share: which leaves get noise, and noise of one scale in them."""

import math

import torch
from jaxtyping import Int
from torch import Tensor

from everlong.interventions._draws import normal
from everlong.state import LeafSpec, RecurrentState, StateSpec


def recurrent(spec: StateSpec) -> tuple[LeafSpec, ...]:
    """The leaves that get noise, in order: never convolution or shift windows, which hold inputs."""
    return tuple(leaf for leaf in spec.leaves if leaf.role == "recurrent")


def standard_noise(
    spec: StateSpec, seed: int, step: int, rows: Int[Tensor, " B"], device: torch.device
) -> RecurrentState:
    """N(0, 1), iid, in the recurrent leaves and zero in the others; a function of (seed, step, global row).

    The numbers are drawn on the CPU, so that they are the same on every device.
    """
    noisy = recurrent(spec)
    sizes = [math.prod(leaf.shape) for leaf in noisy]
    drawn = dict(zip(noisy, normal(seed, step, rows, sum(sizes)).split(sizes, dim=1), strict=True))

    def one(leaf: LeafSpec) -> Tensor:
        if leaf in drawn:
            return drawn[leaf].to(device, leaf.dtype).reshape(len(rows), *leaf.shape)
        return torch.zeros(len(rows), *leaf.shape, dtype=leaf.dtype, device=device)

    return RecurrentState(spec, tuple(one(leaf) for leaf in spec.leaves))
