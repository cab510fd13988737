"""The contract of gated linear attention: every backend in the registry is the float64 reference, gradients included.

An error is relative to 1 + the largest magnitude of the exact tensor. In float32 each backend was measured at 7e-7 or
less over the cases below; where decays are as weak as 1e-6 a token, the reference itself, multiplying by a rounded
decay a token, reaches 4e-6 at T = 300. The bound is 1e-5, far below any error of substance, since an error of index or
sign moves a tensor by its own size.
"""

import math

import pytest
import torch
from torch import Tensor

from everlong.ops.backends import GATED_LINEAR_ATTENTION
from everlong.ops.gated_linear_attention.chunked import gated_linear_attention as chunked
from everlong.ops.gated_linear_attention.reference import gated_linear_attention as reference

from .contract import BOUNDS, Inputs, check, gradients_of, results, servers, slices, strided

BACKENDS = [
    pytest.param(name, dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")
    for dtype in BOUNDS
    for name in servers(GATED_LINEAR_ATTENTION, dtype)
]
FLOAT32 = servers(GATED_LINEAR_ATTENTION)


def make(
    batch: int = 2,
    length: int = 65,
    heads: int = 4,
    groups: int = 2,
    key_dim: int = 7,
    value_dim: int = 5,
    *,
    per_channel: bool = False,
    bonus: bool = False,
    resets: bool = False,
    strongest: float = 60.0,
    weakest: float = 1e-6,
) -> Inputs:
    """Inputs in float64 that float32 represents exactly, decays log-uniform, and a state that tells K from V."""
    random = torch.Generator().manual_seed(length)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random).double()

    spread = torch.rand(batch, length, heads, *([key_dim] if per_channel else []), generator=random)
    decay = (math.log(weakest) + (math.log(strongest) - math.log(weakest)) * spread).exp()
    corner = 10.0 * torch.arange(key_dim)[:, None] + torch.arange(value_dim)
    inputs = {
        "q": normal(batch, length, groups, key_dim),
        "k": normal(batch, length, groups, key_dim),
        "v": normal(batch, length, heads, value_dim),
        "log_decay": -decay.double(),
        "initial_state": (corner / corner.max().clamp(min=1)).expand(batch, heads, -1, -1).float().double(),
    }
    if bonus:
        inputs["bonus"] = normal(heads, key_dim)
    if resets:
        inputs["resets"] = torch.rand(batch, length, generator=random) < 0.06
        inputs["resets"][0, 0] = True  # a row that starts with a reset, and one that may not
        inputs["resets"][-1, length // 2 : length // 2 + 2] = True  # a document of one token
    return inputs


@pytest.mark.parametrize("form", ["plain", "bonus", "resets", "bonus and resets"])
@pytest.mark.parametrize("per_channel", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize(("length", "groups"), [(1, 2), (2, 1), (3, 4), (63, 1), (64, 4), (65, 2), (150, 2)])
@pytest.mark.parametrize(("backend", "dtype"), BACKENDS)
def test_outputs_final_state_and_all_gradients_are_the_reference_s(backend, dtype, length, groups, per_channel, form):
    inputs = make(length=length, groups=groups, per_channel=per_channel, bonus="bonus" in form, resets="resets" in form)
    check(results(GATED_LINEAR_ATTENTION[backend], inputs, dtype), results(reference, inputs), BOUNDS[dtype])


@pytest.mark.parametrize(
    ("key_dim", "value_dim"), [(1, 1), (16, 16), (64, 32), (33, 17), (16, 40), (3, 64)], ids=lambda n: str(n)
)
@pytest.mark.parametrize("per_channel", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("backend", FLOAT32)
def test_any_state_size_serves(backend, per_channel, key_dim, value_dim):
    inputs = make(1, 20, 2, 1, key_dim, value_dim, per_channel=per_channel, bonus=per_channel, resets=True)
    check(results(GATED_LINEAR_ATTENTION[backend], inputs, torch.float32), results(reference, inputs), 1e-5)


@pytest.mark.parametrize(("strongest", "weakest"), [(1.1e-6, 1e-6), (0.1, 1e-3), (60.0, 1e-6), (60.0, 59.0)])
@pytest.mark.parametrize("per_channel", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("backend", FLOAT32)
def test_300_tokens_of_weak_and_strong_decays_stay_accurate(backend, per_channel, strongest, weakest):
    for bonus in (False, True):
        inputs = make(1, 300, 2, 1, 16, 16, per_channel=per_channel, bonus=bonus, strongest=strongest, weakest=weakest)
        check(results(GATED_LINEAR_ATTENTION[backend], inputs, torch.float32), results(reference, inputs), 1e-5)


@pytest.mark.parametrize("backend", FLOAT32)
def test_many_rows_serve_whether_or_not_heads_of_a_group_share_a_thread(backend):
    for batch in (1, 40):
        inputs = make(batch, 9, 4, 2, 16, 16, resets=True)
        check(results(GATED_LINEAR_ATTENTION[backend], inputs, torch.float32), results(reference, inputs), 1e-5)


@pytest.mark.parametrize("per_channel", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("backend", FLOAT32)
def test_a_strong_decay_does_not_blur_the_weak_ones_after_it(backend, per_channel):
    """exp(-60 - 1e-3) and exp(-60) are the same to a float32 sum of 60 and 1e-3 only up to 4e-6 a token."""
    inputs = make(1, 64, 2, 1, 8, 8, per_channel=per_channel, strongest=1e-3, weakest=9e-4)
    inputs["log_decay"][:, 3] = -60.0
    inputs["log_decay"][:, 5:8] = -1000.0  # exp(-1000) is 0 in any precision
    exact = results(reference, inputs)
    check(results(GATED_LINEAR_ATTENTION[backend], inputs, torch.float32), exact, 2e-6)
    assert exact["gradient of log_decay"][:, 9:].abs().max() > 1  # the weak decays after it do matter


@pytest.mark.parametrize("backend", FLOAT32)
def test_a_reset_is_a_new_document(backend):
    operation = GATED_LINEAR_ATTENTION[backend]
    inputs = {n: x if n == "resets" else x.float() for n, x in make(bonus=True).items()}
    resets = torch.zeros(2, 65, dtype=torch.bool)
    resets[:, 20] = True
    outputs, state = operation(**inputs, resets=resets)
    document = slices(inputs, 20, 65) | {"initial_state": torch.zeros_like(inputs["initial_state"])}
    alone, alone_state = operation(**document)
    torch.testing.assert_close(outputs[:, 20:], alone, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(state, alone_state, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("backend", FLOAT32)
def test_nothing_before_a_reset_is_reached_by_what_comes_after_it(backend):
    inputs = {n: x.float().requires_grad_() for n, x in make(per_channel=True).items()}
    resets = torch.zeros(2, 65, dtype=torch.bool)
    resets[:, 20] = True
    outputs, state = GATED_LINEAR_ATTENTION[backend](**inputs, resets=resets)
    gradients = torch.autograd.grad(outputs[:, 20:].sum() + state.sum(), list(inputs.values()))
    gradient = dict(zip(inputs, gradients, strict=True))
    for name in ("q", "k", "v", "log_decay"):
        assert gradient[name][:, :20].abs().max() < 1e-12, name  # chunked differences of sums leave 1e-15
        assert gradient[name][:, 21:].abs().max() > 0.1, name
    assert gradient["log_decay"][:, 20].abs().max() < 1e-12  # the reset's own decay meets no state
    assert gradient["initial_state"].count_nonzero() == 0


@pytest.mark.parametrize("backend", FLOAT32)
def test_rows_of_a_batch_do_not_meet(backend):
    operation = GATED_LINEAR_ATTENTION[backend]
    inputs = make(3, 70, 2, 1, 6, 18, resets=True)
    poisoned = {n: x if n == "resets" else x.clone() for n, x in inputs.items()}
    for name in ("q", "k", "v", "initial_state"):
        poisoned[name][1] = torch.nan
    clean, spoilt = results(operation, inputs, torch.float32), results(operation, poisoned, torch.float32)
    assert spoilt["outputs"][1].isnan().all()  # the poison works, and is not hidden
    for name, x in clean.items():
        assert torch.equal(x[[0, 2]], spoilt[name][[0, 2]]), name


@pytest.mark.parametrize("strongest", [60.0, 2000.0])
@pytest.mark.parametrize("per_channel", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("backend", FLOAT32)
def test_the_gradient_of_a_strong_decay_is_small_enough_to_be_multiplied_by_it(backend, per_channel, strongest):
    """Parameters set the logarithm of a decay's rate: what reaches them is the gradient times the log-decay.

    Seen: 2.1e-5 (cpu, scalar, 60), where a sum over later tokens that is not started anew gives 1.1e-3 (2000).
    """
    for bonus in (False, True):
        inputs = make(per_channel=per_channel, bonus=bonus, strongest=strongest)
        found = results(GATED_LINEAR_ATTENTION[backend], inputs, torch.float32)["gradient of log_decay"]
        exact = results(reference, inputs)["gradient of log_decay"]
        reached = {"rate": found.double() * inputs["log_decay"]}
        check(reached, {"rate": exact * inputs["log_decay"]}, 4e-5)


@pytest.mark.parametrize("part", [0, 1], ids=["outputs", "final state"])
@pytest.mark.parametrize("backend", FLOAT32)
def test_a_loss_on_only_one_of_the_two_results_has_its_own_gradients(backend, part):
    inputs = make(bonus=True)
    exact = gradients_of(reference, part, inputs, torch.float64)
    check(gradients_of(GATED_LINEAR_ATTENTION[backend], part, inputs, torch.float32), exact, 1e-5)


@pytest.mark.parametrize("backend", FLOAT32)
def test_inputs_need_not_be_contiguous(backend):
    inputs = make(per_channel=True, bonus=True, resets=True)
    operation = strided(GATED_LINEAR_ATTENTION[backend])
    check(results(operation, inputs, torch.float32), results(reference, inputs), 1e-5)


@pytest.mark.parametrize("form", ["plain", "bonus and resets"])
@pytest.mark.parametrize("per_channel", [False, True], ids=["scalar", "vector"])
@pytest.mark.parametrize("operation", [reference, chunked], ids=["reference", "chunked"])
def test_float64_gradients_are_finite_differences(operation, per_channel, form):
    length = 18 if per_channel else 66  # over a chunk's end
    inputs = make(
        *(1, length, 2, 1, 2, 1),
        per_channel=per_channel,
        bonus="bonus" in form,
        resets="resets" in form,
        strongest=3.0,
        weakest=1e-2,
    )
    resets = inputs.pop("resets", None)
    names, leaves = list(inputs), tuple(x.clone().requires_grad_() for x in inputs.values())

    def function(*values: Tensor) -> tuple[Tensor, Tensor]:
        return operation(**dict(zip(names, values, strict=True)), resets=resets)

    assert torch.autograd.gradcheck(function, leaves, fast_mode=True)


@pytest.mark.parametrize("backend", FLOAT32)
def test_bfloat16_inputs_are_read_exactly_and_the_state_stays_float32(backend):
    """Only the output is rounded, by at most half of 2^-7 of its size; the state is as exact as from float32."""
    inputs = {n: x if n == "initial_state" else x.bfloat16() for n, x in make(bonus=True).items()}
    inputs["initial_state"] = inputs["initial_state"].float()
    leaves = {n: x.clone().requires_grad_() for n, x in inputs.items()}
    outputs, state = GATED_LINEAR_ATTENTION[backend](**leaves)
    assert (outputs.dtype, state.dtype) == (torch.bfloat16, torch.float32)
    exact_outputs, exact_state = reference(**{n: x.double() for n, x in inputs.items()})
    torch.testing.assert_close(outputs.double(), exact_outputs, rtol=2**-8, atol=1e-4)
    torch.testing.assert_close(state.double(), exact_state, rtol=1e-5, atol=1e-5)
    state.sum().backward()
    assert leaves["k"].grad is not None
    assert leaves["k"].grad.dtype == torch.bfloat16


@pytest.mark.parametrize("backend", FLOAT32)
def test_without_gradients_the_results_are_the_same_to_the_bit(backend):
    inputs = {n: x.float().requires_grad_() for n, x in make().items()}
    with_gradients = GATED_LINEAR_ATTENTION[backend](**inputs)
    with torch.no_grad():
        without = GATED_LINEAR_ATTENTION[backend](**inputs)
    for a, b in zip(with_gradients, without, strict=True):
        assert torch.equal(a, b)
        assert not b.requires_grad


@pytest.mark.skipif("cpu" not in FLOAT32, reason="Numba is not installed")
@pytest.mark.parametrize("batch", [3, 40], ids=["heads apart", "heads of a group together"])
def test_the_cpu_kernel_gives_the_same_bits_with_any_number_of_threads_and_from_run_to_run(batch):
    inputs = make(batch, 150, 4, 1, 32, 32, bonus=True, resets=True)  # enough work for more than one thread
    before = torch.get_num_threads()
    try:
        runs = []
        for threads in (1, 2, 2, 3):
            torch.set_num_threads(threads)
            runs.append(results(GATED_LINEAR_ATTENTION["cpu"], inputs, torch.float32))
    finally:
        torch.set_num_threads(before)
    for run in runs[1:]:
        for name, x in run.items():
            assert torch.equal(x, runs[0][name]), name
