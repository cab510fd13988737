"""Correlated noise: its covariance, that ranks differ in correlation alone, its arms, and its independence of parts."""

import math

import pytest
import torch

from everlong.errors import EverlongError
from everlong.interventions.methods import create
from everlong.state import LeafSpec, RecurrentState, StateSpec
from tests.interventions.states import LENGTH, side_by_side, walk

HEADS, D = 2, 24
DRAWN = 4000
SPEC = StateSpec(
    architecture="toy",
    leaves=tuple(
        LeafSpec(layer=layer, name="recurrent", role="recurrent", shape=(HEADS, 4, 3), dtype=torch.float32)
        for layer in range(2)
    ),
)


def observed(intervention, states: list[torch.Tensor], rows: int = 0, spec: StateSpec = SPEC) -> list[torch.Tensor]:
    """What ``rows`` rows start from after final states [B, D], the same in each layer, one batch a step."""
    for step, state in enumerate(states):
        indices = torch.arange(len(state))
        intervention.initial_state(indices < 0, spec, step, indices)
        final = RecurrentState(spec, tuple(state.float().view(-1, *leaf.shape) for leaf in spec.leaves))
        intervention.observe(final, torch.full((len(state),), LENGTH))
    indices = torch.arange(rows or len(states[-1]))
    started = intervention.initial_state(indices < 0, spec, len(states), indices)
    return [leaf.flatten(1).double() for leaf in started.leaves]


def planted(rank: int, batch_size: int = 512, seed: int = 0, spread: float = 0.0) -> torch.Tensor:
    """[B, D] with ``rank`` common directions, each element's own mean, and each its own spread beside."""
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(D, rank, generator=generator, dtype=torch.float64)
    common = torch.randn(batch_size, rank, generator=generator, dtype=torch.float64)
    own = spread * torch.randn(batch_size, D, generator=generator, dtype=torch.float64)
    return torch.linspace(-3, 3, D, dtype=torch.float64) + common @ factor.T + own


def covariance(values: torch.Tensor) -> torch.Tensor:
    return torch.cov(values.T, correction=0)


def test_noise_of_enough_rank_has_the_covariance_that_was_seen():
    states = planted(3)
    for drawn in observed(create("correlated_noise", seed=0, rank=5), [states], DRAWN):
        scale = covariance(states).abs().max()
        assert (covariance(drawn) - covariance(states)).abs().max() < 0.1 * scale
        torch.testing.assert_close(drawn.mean(0), states.mean(0), rtol=0, atol=4 * math.sqrt(scale / DRAWN))


def test_every_rank_has_the_same_mean_and_variance_of_each_element_and_rank_0_no_correlation():
    states = planted(3, spread=0.5)
    wanted = states.var(0, correction=0)
    for rank in (0, 1, 4, 30):
        drawn = observed(create("correlated_noise", seed=0, rank=rank), [states], DRAWN)[0]
        error = 4 * math.sqrt(2 / DRAWN)
        assert (drawn.var(0) / wanted - 1).abs().max() < error
        correlation = torch.corrcoef(drawn.T) - torch.eye(D)
        assert (correlation.abs().max() < 5 / math.sqrt(DRAWN)) == (rank == 0)


def test_the_common_part_is_never_above_the_covariance_and_grows_with_the_rank():
    states = planted(6, spread=0.3)
    shares = []
    for rank in (1, 2, 4, 8, 16):
        method = create("correlated_noise", seed=0, rank=rank)
        observed(method, [states])
        factor = method._factor(0)
        assert torch.linalg.eigvalsh(covariance(states.float().double()) - factor @ factor.T).min() > -1e-6
        shares.append(method.summary()["common_share_of_variance"][0])
    assert shares == sorted(shares)
    assert shares[0] < 0.5 < 0.95 < shares[-1]


def test_layers_are_drawn_for_themselves():
    first, second = observed(create("correlated_noise", seed=0, rank=3), [planted(3)], DRAWN)
    across = torch.corrcoef(torch.cat([first, second], 1).T)[:D, D:]
    assert across.abs().max() < 5 / math.sqrt(DRAWN)


@pytest.mark.parametrize(
    ("settings", "mean", "variance"),
    [
        ({"variance": "none"}, "element", "none"),
        ({"variance": "head"}, "element", "head"),
        ({"mean": "head"}, "head", "element"),
        ({"mean": "head", "variance": "none"}, "head", "none"),
        ({}, "element", "element"),
    ],
)
def test_the_arms_keep_the_means_and_variances_that_they_name(settings, mean, variance):
    states = planted(3, spread=0.5)

    def of_heads(values: torch.Tensor) -> torch.Tensor:
        return values.view(HEADS, -1).mean(1, keepdim=True).expand(-1, D // HEADS).flatten()

    centre, spread = states.mean(0), states.var(0, correction=0)
    centre = of_heads(centre) if mean == "head" else centre
    spread = {"element": spread, "head": of_heads(spread), "none": torch.zeros(D)}[variance]
    drawn = observed(create("correlated_noise", seed=0, rank=0, **settings), [states], DRAWN)[0]
    torch.testing.assert_close(drawn.mean(0), centre, rtol=1e-5, atol=float(4 * (spread.max() / DRAWN).sqrt()) + 1e-6)
    torch.testing.assert_close(drawn.var(0), spread.double(), rtol=4 * math.sqrt(2 / DRAWN), atol=1e-9)


@pytest.mark.parametrize("b", [0.0, 0.1, 0.6])
def test_moments_and_covariance_follow_the_running_average_of_the_paper(b):
    method = create("correlated_noise", seed=1, rank=4, history_weight=b)
    batches = [planted(2, 64, seed).float() for seed in range(3)]
    observed(method, batches)
    mean, spread = batches[0].double().mean(0), covariance(batches[0].double())
    for batch in batches[1:]:
        mean = (1 - b) * batch.double().mean(0) + b * mean
        spread = (1 - b) * covariance(batch.double()) + b * spread
    moments = method.state_dict()
    torch.testing.assert_close(moments["0.mean"], mean)
    torch.testing.assert_close(moments["0.variance"], spread.diagonal())
    torch.testing.assert_close(moments["0.sketch"], spread @ method._signs_of(0, D, mean.device))


@pytest.mark.parametrize("rank", [0, 3, 8])
def test_the_noise_does_not_depend_on_how_many_processes_the_rows_are_spread_over(rank):
    def after(parts: list[list[int]]) -> list[torch.Tensor]:
        arms = [create("correlated_noise", seed=2, rank=rank) for _ in parts]
        rows = [torch.tensor(part) for part in parts]
        side_by_side_walk = side_by_side(arms, range(6), rows)
        order = torch.cat(rows).argsort()
        leaves = zip(*(met[-1][0].leaves for met in side_by_side_walk), strict=True)
        return [torch.cat(leaf)[order] for leaf in leaves]

    whole = after([[0, 1, 2, 3, 4, 5]])
    for parts in ([[0, 1, 2], [3, 4, 5]], [[5, 0], [1, 3], [2, 4]], [[0], [1, 2, 3, 4, 5]]):
        for ours, theirs in zip(after(parts), whole, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=0)


def test_a_batch_of_few_rows_gives_noise_that_is_finite_at_any_rank():
    for batch_size in (1, 2):
        drawn = observed(create("correlated_noise", seed=0, rank=30), [planted(3, batch_size)], 50)[0]
        assert drawn.isfinite().all()
        assert (drawn.std(0).max() < 1e-6) == (batch_size == 1)


@pytest.mark.parametrize("rank", [1, 8, 32])
@pytest.mark.parametrize("batch_size", [3, 4, 6, 7, 64])
@pytest.mark.parametrize("mean_over_spread", [1e3, 1e5, 1e7, math.inf])
def test_rows_that_hardly_differ_beside_their_mean_give_noise_all_the_same(mean_over_spread, batch_size, rank):
    """Rounding leaves a covariance that is not quite positive, or nothing of it: rows may be alike to the bit."""
    generator = torch.Generator().manual_seed(1)
    own = torch.randn(batch_size, D, generator=generator, dtype=torch.float64) / mean_over_spread
    method = create("correlated_noise", seed=0, rank=rank)
    mean = torch.linspace(1, 3, D, dtype=torch.float64)
    drawn = observed(method, [mean + own, mean + own.flip(0)], 50)[0]
    torch.testing.assert_close(drawn, mean.expand(50, -1), rtol=0, atol=10 / mean_over_spread + 1e-5)
    assert all(0 <= share <= 1 + 1e-6 for share in method.summary()["common_share_of_variance"])


def test_its_memory_is_bounded_whatever_was_read():
    method = create("correlated_noise", seed=0, rank=4)
    sizes = []
    for steps in (2, 20):
        walk(method, range(steps), torch.arange(4))
        sizes.append(sum(value.numel() for value in method.state_dict().values() if isinstance(value, torch.Tensor)))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mean": "head", "variance": "head", "rank": 0}, "that is the method fitted_noise"),
        ({"variance": "none"}, "rank is 8, variance 'none': a rank above 0 needs variance element"),
        ({"rank": -1}, "rank is -1; it must be at least 0"),
    ],
)
def test_arms_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(EverlongError, match=message):
        create("correlated_noise", seed=0, **settings)


def test_moments_of_another_model_are_refused():
    method = create("correlated_noise", seed=0)
    observed(method, [planted(2, 8)])
    other = StateSpec(architecture="other", leaves=SPEC.leaves[:1])
    with pytest.raises(EverlongError, match=r"another model's: of \[24, 24\] elements, this one has \[24\]"):
        method.initial_state(torch.arange(2) < 0, other, 5, torch.arange(2))
