"""A small state specification with every role, and final states that tell who wrote them."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import torch
from torch import Tensor

from everlong.state import LeafSpec, RecurrentState, StateSpec

LENGTH = 16
SPEC = StateSpec(
    architecture="toy",
    leaves=(
        LeafSpec(layer=0, name="recurrent", role="recurrent", shape=(2, 3, 2), dtype=torch.float32),
        LeafSpec(layer=0, name="convolution", role="convolution", shape=(3, 4), dtype=torch.bfloat16),
        LeafSpec(layer=1, name="recurrent", role="recurrent", shape=(2, 3, 2), dtype=torch.float32),
        LeafSpec(layer=1, name="shift", role="shift", shape=(4,), dtype=torch.bfloat16),
    ),
)


def final_state(step: int, rows: Tensor) -> RecurrentState:
    """What the model might end at: each row's values are those of (step, row), whichever rows stand beside it."""

    def one(leaf: Tensor) -> Tensor:
        ramp = torch.arange(leaf[0].numel(), dtype=torch.float32).view(leaf.shape[1:])
        level = (1.0 + step + rows.float() / 8).view(-1, *[1] * (leaf.ndim - 1))
        return (level + ramp / 64).to(leaf.dtype)

    return SPEC.zeros(len(rows)).map(one)


def walk(intervention, steps: range, rows: Tensor) -> list[tuple[RecurrentState, Tensor]]:
    """Runs steps as the loop does; returns the initial states and their ages."""
    met = []
    for step in steps:
        state = intervention.initial_state(torch.zeros(len(rows), dtype=torch.bool), SPEC, step, rows)
        ages = intervention.ages(rows)
        met.append((state, ages))
        intervention.observe(final_state(step, rows), ages + LENGTH)
    return met


def side_by_side(interventions: list, steps: range, rows: list[Tensor]) -> list[list[tuple[RecurrentState, Tensor]]]:
    """Walks as processes would, each with its rows: threads, whose sums over all wait for one another."""
    board: dict[int, Tensor] = {}
    barrier = Barrier(len(interventions), timeout=10)

    def sum_for(place: int):
        def summed(tensor: Tensor) -> Tensor:
            board[place] = tensor
            barrier.wait()
            total = torch.stack([board[other] for other in range(len(interventions))]).sum(0)
            barrier.wait()
            return total

        return summed

    for place, intervention in enumerate(interventions):
        intervention.sum_over_processes = sum_for(place)
    with ThreadPoolExecutor(len(interventions)) as pool:
        return list(pool.map(walk, interventions, [steps] * len(rows), rows))


def same(a: RecurrentState, b: RecurrentState) -> bool:
    """Whether two states are equal to the bit."""
    return all(torch.equal(x, y) for x, y in zip(a.leaves, b.leaves, strict=True))
