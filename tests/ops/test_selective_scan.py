"""The contract of the selective scan: every backend in the registry is the float64 reference, gradients included.

An error is relative to 1 + the largest magnitude of the exact tensor. In float32 each backend was measured at 1.3e-6 or
less (decays of 1e-6 a token, T = 300). The bound is 1e-5, far below any error of substance, since an error of index or
sign moves a tensor by its own size.
"""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from everlong.errors import EverlongError
from everlong.ops.backends import SELECTIVE_SCAN, SelectiveScan
from everlong.ops.selective_scan.chunked import selective_scan as chunked
from everlong.ops.selective_scan.reference import selective_scan as reference

from .contract import BOUNDS, Inputs, check, gradients_of, results, servers, slices, strided

BACKENDS = [
    pytest.param(name, dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")
    for dtype in BOUNDS
    for name in servers(SELECTIVE_SCAN, dtype)
]
FLOAT32 = servers(SELECTIVE_SCAN)
every_backend = pytest.mark.parametrize("backend", FLOAT32)


def make(
    batch: int = 2,
    length: int = 65,
    channels: int = 7,
    states: int = 5,
    *,
    resets: bool = False,
    strongest: float = 60.0,
    weakest: float = 1e-6,
) -> Inputs:
    """Inputs in float64 that float32 represents exactly, dt A log-uniform, and a state that tells C from N."""
    random = torch.Generator().manual_seed(length)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random).double()

    spread = 0.5 * math.log(strongest / weakest)  # half of it in dt, which reaches 1, half in A
    order = torch.randperm(channels * states, generator=random)
    rates = strongest * (-spread * torch.linspace(0, 1, channels * states)[order]).exp()
    steps = (-spread * torch.rand(batch, length, channels, generator=random)).exp()
    corner = 10.0 * torch.arange(channels)[:, None] + torch.arange(states)
    inputs = {
        "x": normal(batch, length, channels),
        "dt": steps.float().double(),
        "A": -rates.view(channels, states).float().double(),
        "B": normal(batch, length, states),
        "C": normal(batch, length, states),
        "initial_state": (corner / corner.max().clamp(min=1)).expand(batch, -1, -1).float().double(),
    }
    if resets:
        inputs["resets"] = torch.rand(batch, length, generator=random) < 0.06
        inputs["resets"][0, 0] = True  # a row that starts with a reset, and one that may not
        inputs["resets"][-1, length // 2 : length // 2 + 2] = True  # a document of one token
    return inputs


def test_the_log_decays_of_these_tests_reach_from_weak_to_strong():
    inputs = make(length=300)
    logs = inputs["dt"][..., None] * inputs["A"]
    assert logs.min() < -30
    assert logs.max() > -2e-6


@pytest.mark.parametrize("resets", [False, True], ids=["plain", "resets"])
@pytest.mark.parametrize("length", [1, 2, 3, 63, 64, 65, 150, 300])
@pytest.mark.parametrize(("backend", "dtype"), BACKENDS)
def test_outputs_final_state_and_all_gradients_are_the_reference_s(backend, dtype, length, resets):
    inputs = make(length=length, resets=resets)
    check(results(SELECTIVE_SCAN[backend], inputs, dtype), results(reference, inputs), BOUNDS[dtype])


@pytest.mark.parametrize(("channels", "states"), [(1, 1), (16, 16), (33, 16), (64, 3), (5, 17), (40, 64)], ids=str)
@every_backend
def test_any_state_size_serves(backend, channels, states):
    inputs = make(3, 20, channels, states, resets=True)
    check(results(SELECTIVE_SCAN[backend], inputs, torch.float32), results(reference, inputs), 1e-5)


@pytest.mark.parametrize(("strongest", "weakest"), [(1.1e-6, 1e-6), (0.1, 1e-3), (60.0, 1e-6), (60.0, 59.0)])
@every_backend
def test_300_tokens_of_weak_and_strong_decays_stay_accurate(backend, strongest, weakest):
    inputs = make(1, 300, 16, 16, strongest=strongest, weakest=weakest)
    check(results(SELECTIVE_SCAN[backend], inputs, torch.float32), results(reference, inputs), 1e-5)


@every_backend
def test_a_strong_decay_forgets_and_the_weak_ones_after_it_are_as_exact(backend):
    inputs = make(1, 64, 8, 8, strongest=1e-3, weakest=9e-4)
    inputs["dt"][:, 3] = 60.0 / -inputs["A"].mean()
    inputs["dt"][:, 5:8] = 1000.0 / -inputs["A"].mean()  # exp(-1000) is 0 in any precision
    inputs = {n: x.float().double() for n, x in inputs.items()}
    exact = results(reference, inputs)
    check(results(SELECTIVE_SCAN[backend], inputs, torch.float32), exact, 1e-5)
    assert exact["gradient of dt"][:, 9:].abs().max() > 1  # the weak decays after it do matter


@every_backend
def test_nothing_before_a_reset_is_reached_by_what_comes_after_it(backend):
    operation = SELECTIVE_SCAN[backend]
    inputs = {n: x.float().requires_grad_() for n, x in make(strongest=1.0).items()}
    resets = torch.zeros(2, 65, dtype=torch.bool)
    resets[:, 20] = True
    outputs, state = operation(**inputs, resets=resets)
    document = slices(inputs, 20, 65) | {"initial_state": torch.zeros_like(inputs["initial_state"])}
    alone, alone_state = operation(**document)
    torch.testing.assert_close(outputs[:, 20:], alone, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(state, alone_state, rtol=1e-5, atol=1e-5)
    gradients = torch.autograd.grad(outputs[:, 20:].sum() + state.sum(), list(inputs.values()))
    gradient = dict(zip(inputs, gradients, strict=True))
    for name in ("x", "dt", "B"):
        assert gradient[name][:, :20].count_nonzero() == 0, name
        assert gradient[name][:, 20:].abs().max() > 0.05, name
    assert gradient["initial_state"].count_nonzero() == 0


@every_backend
def test_rows_of_a_batch_do_not_meet(backend):
    operation = SELECTIVE_SCAN[backend]
    inputs = make(3, 70, 6, 18, resets=True)
    poisoned = {n: x if n == "resets" else x.clone() for n, x in inputs.items()}
    for name in ("x", "B", "C", "initial_state"):
        poisoned[name][1] = torch.nan
    clean, spoilt = results(operation, inputs, torch.float32), results(operation, poisoned, torch.float32)
    assert spoilt["outputs"][1].isnan().all()  # the poison works, and is not hidden
    for name, x in clean.items():
        if name != "gradient of A":  # which is a sum over rows
            assert torch.equal(x[[0, 2]], spoilt[name][[0, 2]]), name


@pytest.mark.parametrize("part", [0, 1], ids=["outputs", "final state"])
@every_backend
def test_a_loss_on_only_one_of_the_two_results_has_its_own_gradients(backend, part):
    inputs = make()
    exact = gradients_of(reference, part, inputs, torch.float64)
    check(gradients_of(SELECTIVE_SCAN[backend], part, inputs, torch.float32), exact, 1e-5)


@every_backend
def test_inputs_need_not_be_contiguous(backend):
    inputs = make(resets=True)
    operation = strided(SELECTIVE_SCAN[backend])
    check(results(operation, inputs, torch.float32), results(reference, inputs), 1e-5)


@pytest.mark.parametrize("resets", [False, True], ids=["plain", "resets"])
@pytest.mark.parametrize("operation", [reference, chunked], ids=["reference", "chunked"])
def test_float64_gradients_are_finite_differences(operation, resets):
    inputs = make(1, 66, 2, 3, resets=resets, strongest=3.0, weakest=1e-2)  # over a block's end
    where = inputs.pop("resets", None)
    names, leaves = list(inputs), tuple(x.clone().requires_grad_() for x in inputs.values())

    def function(*values: Tensor) -> tuple[Tensor, Tensor]:
        return operation(**dict(zip(names, values, strict=True)), resets=where)

    assert torch.autograd.gradcheck(function, leaves, fast_mode=True)


@every_backend
def test_bfloat16_inputs_are_read_exactly_and_the_state_stays_float32(backend):
    """Only the output is rounded, by at most half of 2^-7 of its size; the state is as exact as from float32."""
    wide = ("initial_state", "dt", "A")
    inputs = {n: x.float() if n in wide else x.bfloat16() for n, x in make().items()}
    leaves = {n: x.clone().requires_grad_() for n, x in inputs.items()}
    outputs, state = SELECTIVE_SCAN[backend](**leaves)
    assert (outputs.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    exact_outputs, exact_state = reference(**{n: x.double() for n, x in inputs.items()})
    torch.testing.assert_close(outputs.double(), exact_outputs, rtol=2**-8, atol=1e-4)
    torch.testing.assert_close(state.double(), exact_state, rtol=1e-5, atol=1e-5)
    state.sum().backward()
    assert leaves["B"].grad is not None
    assert leaves["B"].grad.dtype == torch.bfloat16


@every_backend
def test_without_gradients_the_results_are_the_same_to_the_bit(backend):
    inputs = {n: x.float().requires_grad_() for n, x in make().items()}
    with_gradients = SELECTIVE_SCAN[backend](**inputs)
    with torch.no_grad():
        without = SELECTIVE_SCAN[backend](**inputs)
    for a, b in zip(with_gradients, without, strict=True):
        assert torch.equal(a, b)
        assert not b.requires_grad


@pytest.mark.parametrize("backend", [name for name in FLOAT32 if name != "reference"])
def test_what_is_kept_for_the_backward_pass_grows_with_the_inputs_and_not_with_their_states(backend):
    """One state a segment of tokens, never one a token; and the final state is no view of anything longer."""
    length, channels, states = 1000, 32, 16
    saved: list[Any] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor

    inputs = {n: x.float().requires_grad_() for n, x in make(1, length, channels, states).items()}
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        _, state = SELECTIVE_SCAN[backend](**inputs)
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in saved}
    one_a_token = 4 * length * (2 * channels + 2 * states + 1)
    assert sum(storages.values()) < one_a_token + 4 * length * channels * states / 16
    assert state.untyped_storage().nbytes() == state.nbytes


def test_the_submodule_names_the_backend_that_serves_and_refuses_what_cannot():
    assert SelectiveScan("chunked").choose(torch.device("cpu"), torch.float64) == "chunked"
    assert SelectiveScan("auto").choose(torch.device("cpu"), torch.float64) == "chunked"
    with pytest.raises(EverlongError, match="unknown backend 'abacus'; known: auto, chunked"):
        SelectiveScan("abacus").choose(torch.device("cpu"), torch.float32)


@pytest.mark.skipif("cpu" not in FLOAT32, reason="Numba is not installed")
@pytest.mark.parametrize("batch", [1, 5, 20])
def test_the_cpu_kernel_gives_the_same_bits_with_any_number_of_threads_and_from_run_to_run(batch):
    inputs = make(batch, 70, 256, 16, resets=True)  # enough work for more than one thread
    before = torch.get_num_threads()
    try:
        runs = []
        for threads in (1, 2, 2, 3):
            torch.set_num_threads(threads)
            runs.append(results(SELECTIVE_SCAN["cpu"], inputs, torch.float32))
    finally:
        torch.set_num_threads(before)
    for run in runs[1:]:
        for name, x in run.items():
            assert torch.equal(x, runs[0][name]), name
