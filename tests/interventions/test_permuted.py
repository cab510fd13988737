"""The ladder: each level keeps what its parts hold over the batch, keeps them whole, and takes them from other rows."""

import pytest
import torch

from everlong.interventions.methods import create
from everlong.models.architectures import create as create_model
from everlong.state import RecurrentState, StateSpec
from tests.interventions.states import LENGTH, side_by_side
from tests.models.tiny import TINY

BATCH = 32
ROWS = torch.arange(BATCH)
LEVELS = ("layers", "heads", "channels", "elements")


def tagged(spec: StateSpec) -> RecurrentState:
    """Every value is its row's number."""
    return spec.zeros(BATCH).map(lambda leaf: leaf + ROWS.view(-1, *[1] * (leaf.ndim - 1)).to(leaf.dtype))


def started(spec: StateSpec, level: str, seed: int = 0) -> RecurrentState:
    method = create("state_passing", seed=seed, reset_probability=0.0, permuted=level)
    method.initial_state(ROWS < 0, spec, 0, ROWS)
    method.observe(tagged(spec), 10 * ROWS)
    state = method.initial_state(ROWS < 0, spec, 1, ROWS)
    assert method.ages(ROWS).tolist() == [round(10 * (BATCH - 1) / 2)] * BATCH  # parts of all ages: their mean
    return state


def pieces(state: RecurrentState, level: str) -> list[torch.Tensor]:
    """The parts that stay whole, [B, values] each."""
    if level == "layers":
        layers = {leaf.layer for leaf in state.spec.leaves}
        return [
            torch.cat([t.flatten(1) for leaf, t in state.items() if leaf.layer == layer], 1) for layer in sorted(layers)
        ]
    parts = []
    for leaf, tensor in state.items():
        if level == "elements":
            parts += list(tensor.flatten(1).unsqueeze(2).unbind(1))
        elif leaf.role == "recurrent" and (level == "heads" or tensor.ndim == 3):
            parts += [head.flatten(1) for head in tensor.unbind(1)]
        elif leaf.role == "recurrent":
            parts += [channel for head in tensor.unbind(1) for channel in head.unbind(2)]
        elif level == "heads":
            parts += [tensor.flatten(1)]
        else:
            parts += [channel.reshape(BATCH, -1) for channel in tensor.unbind(-1)]
    return parts


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("architecture", TINY)
def test_parts_stay_whole_and_over_the_batch_the_same_and_come_from_independent_rows(architecture, level):
    spec = create_model(architecture, **TINY[architecture]).state_spec
    parts = pieces(started(spec, level), level)
    sources = []
    for part in parts:
        assert (part == part[:, :1]).all()
        assert part[:, 0].sort().values.tolist() == ROWS.tolist()
        sources.append((part[:, 0].long() - ROWS) % BATCH)
    turns = torch.stack(sources)[:, 0]
    assert len(parts) == 1 or len(set(turns.tolist())) > 1
    if len(turns) > 100:
        assert torch.bincount(turns, minlength=BATCH).max() < 4 * len(turns) / BATCH + 10


def test_each_level_breaks_more_than_the_one_above_it():
    spec = create_model("mamba2", **TINY["mamba2"]).state_spec
    counts = [len(pieces(started(spec, level), level)) for level in LEVELS]
    assert counts == sorted(set(counts))


def test_unpermuted_it_is_state_passing():
    spec = create_model("mamba2", **TINY["mamba2"]).state_spec
    method = create("state_passing", seed=0, reset_probability=0.0)
    method.initial_state(ROWS < 0, spec, 0, ROWS)
    method.observe(tagged(spec), ROWS)
    state = method.initial_state(ROWS < 0, spec, 1, ROWS)
    assert all((leaf.flatten(1) == ROWS.unsqueeze(1)).all() for leaf in state.leaves)


@pytest.mark.parametrize("level", LEVELS)
def test_the_states_do_not_depend_on_the_processes(level):
    """Rows come from other processes, too, to the bit."""

    def after(parts: list[list[int]]) -> list[list]:
        arms = [create("state_passing", seed=5, permuted=level) for _ in parts]
        met = side_by_side(arms, range(6), [torch.tensor(part) for part in parts])
        order = torch.cat([torch.tensor(part) for part in parts]).argsort()
        states = [
            [torch.cat(leaf)[order] for leaf in zip(*(m[s][0].leaves for m in met), strict=True)] for s in range(6)
        ]
        ages = [torch.cat([m[s][1] for m in met])[order] for s in range(6)]
        return [[*state, age] for state, age in zip(states, ages, strict=True)]

    whole = after([[0, 1, 2, 3]])
    for parts in ([[0, 1], [2, 3]], [[3, 1], [0], [2]]):
        for ours, theirs in zip(after(parts), whole, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_a_batch_in_several_parts_is_permuted_as_a_whole():
    spec = create_model("mamba2", **TINY["mamba2"]).state_spec
    whole, parts = (create("state_passing", seed=1, permuted="heads") for _ in range(2))
    for step in range(4):
        together = whole.initial_state(ROWS < 0, spec, step, ROWS)
        whole.observe(tagged(spec).map(lambda leaf, step=step: leaf + step), torch.full((BATCH,), LENGTH))
        for part in (ROWS[:10], ROWS[10:]):
            state = parts.initial_state(part < 0, spec, step, part)
            assert all(torch.equal(a, b) for a, b in zip(state.leaves, together.rows(part).leaves, strict=True))
            final = tagged(spec).map(lambda leaf, step=step: leaf + step).rows(part)
            parts.observe(final, torch.full((len(part),), LENGTH))
