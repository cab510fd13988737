"""Every backend of the interpolations is the formula in float64, outputs, final state and all gradients."""

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from everlong.errors import EverlongError
from everlong.ops.backends import INTERPOLATION

from .contract import BOUNDS, Inputs, Operation, check, in_pieces, servers
from .contract import results as results_of

COUNT = 3
BACKENDS = [
    pytest.param(name, dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")
    for dtype in BOUNDS
    for name in servers(INTERPOLATION, dtype)
]
FLOAT32 = servers(INTERPOLATION)


def formula(x: Tensor, A: Tensor, initial_state: Tensor, moves: Tensor | None = None, resets=None):
    """Equations (1) and (2), token by token; ``A`` are the weights, which have no time axis."""
    before, rows = initial_state, []
    for t in range(x.shape[1]):
        if resets is not None:
            before = before.masked_fill(resets[:, t, None], 0)
        weights = A[None] if moves is None else A + moves[:, t]
        rows.append(x[:, t, None] + (before - x[:, t])[:, None] * weights)
        before = x[:, t]
    return torch.stack(rows, dim=1), before


def served(backend: str) -> Operation:
    """A backend with the changes, and the outputs, in one tensor [B, T, I, C]."""

    def run(x, A, initial_state, moves=None, resets=None):
        changes = () if moves is None else moves.unbind(2)
        outputs, final = INTERPOLATION[backend](x, A.unbind(), changes, initial_state, resets=resets)
        return torch.stack(outputs, dim=2), final

    return run


def make(batch: int, length: int, channels: int, *, moves: bool, resets: bool) -> Inputs:
    random = torch.Generator().manual_seed(5)
    shapes = {"x": (batch, length, channels), "A": (COUNT, channels), "initial_state": (batch, channels)}
    if moves:
        shapes["moves"] = (batch, length, COUNT, channels)
    inputs = {name: torch.randn(shape, generator=random).double() for name, shape in shapes.items()}
    if resets:  # at pieces' ends too
        where = torch.arange(length)[None] + torch.arange(batch)[:, None]
        inputs["resets"] = where % 16 == 0
    return inputs


@pytest.mark.parametrize("moves", [False, True], ids=["fixed", "moving"])
@pytest.mark.parametrize("resets", [False, True], ids=["", "resets"])
@pytest.mark.parametrize("shape", [(1, 1, 5), (2, 2, 16), (3, 63, 33), (2, 64, 8), (2, 65, 48), (1, 200, 7)], ids=str)
@pytest.mark.parametrize(("backend", "dtype"), BACKENDS)
def test_outputs_final_state_and_all_gradients_are_the_formula_s(backend, dtype, shape, resets, moves):
    inputs = make(*shape, moves=moves, resets=resets)
    check(results_of(served(backend), inputs, dtype), results_of(formula, inputs), BOUNDS[dtype])


@pytest.mark.parametrize("backend", FLOAT32)
def test_any_split_gives_the_whole(backend):
    inputs = make(2, 130, 9, moves=True, resets=True)
    exact = results_of(formula, inputs)
    for bounds in ((0, 1, 130), (0, 63, 64, 130), (0, 100, 130)):
        sizes = [stop - start for start, stop in pairwise(bounds)]
        check(results_of(in_pieces(served(backend), sizes), inputs, torch.float32), exact, 1e-5)


@pytest.mark.parametrize("backend", FLOAT32)
def test_no_tokens_are_an_error(backend):
    with pytest.raises(EverlongError, match=r"the input is \[2, 0\]"):
        INTERPOLATION[backend](torch.empty(2, 0, 4), [torch.ones(4)], (), torch.zeros(2, 4))


@pytest.mark.parametrize("backend", FLOAT32)
def test_a_carried_input_that_is_not_finite_ends_with_its_document(backend):
    resets = torch.zeros(2, 20, dtype=torch.bool)
    resets[0, 0] = True
    state = torch.tensor([[torch.nan], [1.0]]).expand(2, 4).contiguous()
    (y,), _ = INTERPOLATION[backend](torch.ones(2, 20, 4), [torch.ones(4)], (), state, resets=resets)
    exact = torch.ones(2, 20)
    exact[0, 0] = 0
    assert torch.equal(y[:, :, 0], exact)


@pytest.mark.skipif("cpu" not in FLOAT32, reason="Numba is not installed")
def test_the_cpu_kernel_gives_the_same_bits_with_any_number_of_threads_and_from_run_to_run():
    inputs = make(3, 700, 256, moves=True, resets=True)
    before = torch.get_num_threads()
    try:
        runs = []
        for threads in (1, 2, 2, 3):
            torch.set_num_threads(threads)
            runs.append(results_of(served("cpu"), inputs, torch.float32))
    finally:
        torch.set_num_threads(before)
    for other in runs[1:]:
        for name, x in other.items():
            assert torch.equal(x, runs[0][name]), name
