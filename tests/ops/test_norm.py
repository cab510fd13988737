"""Every backend of the norms is the formula in float64, outputs and all gradients."""

import pytest
import torch
from torch import Tensor

from everlong.ops.backends import NORM

from .contract import BOUNDS, Inputs, check, servers

BACKENDS = [
    pytest.param(name, dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")
    for dtype in BOUNDS
    for name in servers(NORM, dtype)
]
FLOAT32 = servers(NORM)


def formula(x, weight, bias=None, gate=None, *, epsilon, groups, centred, gate_comes):
    """Equations (1) to (3), written out."""
    opening = 1 if gate is None else gate / (1 + torch.exp(-gate))
    u = x * opening if gate_comes == "first" else x
    parts = []
    for part in u.chunk(groups, dim=-1):
        middle = part - part.mean(-1, keepdim=True) if centred else part
        parts.append(middle / torch.sqrt((middle**2).mean(-1, keepdim=True) + epsilon))
    y = torch.cat(parts, dim=-1) * weight
    y = y if bias is None else y + bias
    return y * opening if gate_comes == "last" else y


def make(*axes: int, bias: bool, gate: bool) -> Inputs:
    random = torch.Generator().manual_seed(3)
    shapes = {"x": axes, "weight": axes[-1:], "bias": axes[-1:], "gate": axes}
    wanted = {"x", "weight", *(["bias"] if bias else []), *(["gate"] if gate else [])}
    return {n: torch.randn(*shape, generator=random).double() for n, shape in shapes.items() if n in wanted}


def results(operation, inputs: Inputs, dtype: torch.dtype = torch.float64, **options) -> Inputs:
    leaves = {n: x.to(dtype, copy=True).requires_grad_() for n, x in inputs.items()}
    y = operation(**{"bias": None, "gate": None, **leaves}, **options)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    gradients = torch.autograd.grad((y * weights).sum(), list(leaves.values()))
    return {"y": y.detach()} | {f"gradient of {n}": g for n, g in zip(leaves, gradients, strict=True)}


@pytest.mark.parametrize(("gate", "gate_comes"), [(False, "last"), (True, "first"), (True, "last")])
@pytest.mark.parametrize("bias", [False, True], ids=["", "bias"])
@pytest.mark.parametrize("centred", [False, True], ids=["rms", "layer"])
@pytest.mark.parametrize(
    ("axes", "groups"), [((1, 1, 5), 1), ((2, 70, 48), 3), ((3, 5, 4, 16), 1), ((7, 18), 2)], ids=str
)
@pytest.mark.parametrize(("backend", "dtype"), BACKENDS)
def test_outputs_and_all_gradients_are_the_formula_s(backend, dtype, axes, groups, centred, bias, gate, gate_comes):
    inputs = make(*axes, bias=bias, gate=gate)
    options = {"epsilon": 1e-5, "groups": groups, "centred": centred, "gate_comes": gate_comes}
    exact = results(formula, inputs, **options)
    check(results(NORM[backend], inputs, dtype, **options), exact, BOUNDS[dtype])


@pytest.mark.parametrize("backend", FLOAT32)
def test_slices_of_a_wider_tensor_serve(backend):
    inputs = make(2, 9, 24, bias=False, gate=True)
    options = {"epsilon": 1e-5, "groups": 2, "centred": False, "gate_comes": "first"}

    def sliced(x: Tensor, gate: Tensor, **others) -> Tensor:
        left, right = torch.cat([x, gate], dim=-1).chunk(2, dim=-1)
        return NORM[backend](x=left, gate=right, **others)

    check(results(sliced, inputs, torch.float32, **options), results(formula, inputs, **options), 1e-5)


@pytest.mark.parametrize("backend", FLOAT32)
def test_what_is_not_finite_spoils_its_own_token_only(backend):
    x = torch.randn(1, 4, 16, generator=torch.Generator().manual_seed(0))
    x[0, 1, 3], x[0, 2, 5] = torch.nan, torch.inf
    options = {"epsilon": 1e-5, "groups": 1, "centred": False, "gate_comes": "last"}
    y = NORM[backend](x, torch.ones(16), None, None, **options)
    assert y[0, 1].isnan().all()
    assert not y[0, 2].isfinite().all()
    assert y[0, [0, 3]].isfinite().all()


@pytest.mark.skipif("cpu" not in FLOAT32, reason="Numba is not installed")
def test_the_cpu_kernel_gives_the_same_bits_with_any_number_of_threads_and_from_run_to_run():
    inputs = make(3, 300, 256, bias=True, gate=True)
    options = {"epsilon": 1e-5, "groups": 2, "centred": True, "gate_comes": "last"}
    before = torch.get_num_threads()
    try:
        runs = []
        for threads in (1, 2, 2, 3):
            torch.set_num_threads(threads)
            runs.append(results(NORM["cpu"], inputs, torch.float32, **options))
    finally:
        torch.set_num_threads(before)
    for other in runs[1:]:
        for name, x in other.items():
            assert torch.equal(x, runs[0][name]), name
