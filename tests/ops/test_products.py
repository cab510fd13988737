"""Products with weights are exact to float32 in the default precision, to bfloat16 where asked, gradients too."""

import pytest
import torch
from torch import Tensor

from everlong.ops.products import FEW, linear, products_in

BOUNDS = {"float32": 1e-6, "bfloat16": 1e-2}  # of the largest magnitude; measured: 2e-7 and 4e-3


def make(rows: int, inner: int, outer: int) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(rows)
    shapes = [(rows, inner), (outer, inner), (outer,)]
    return tuple(torch.randn(*shape, generator=random).requires_grad_() for shape in shapes)  # pyright: ignore


def results(inputs: tuple[Tensor, ...]) -> list[Tensor]:
    y = linear(*inputs)
    weights = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(y.dtype)
    return [y.detach(), *torch.autograd.grad((y * weights).sum(), inputs)]


def error(found: Tensor, exact: Tensor) -> float:
    return ((found.double() - exact).abs().max() / exact.abs().max()).item()


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize(("rows", "inner", "outer"), [(FEW - 1, 8, 5), (FEW, 8, 5), (100, 33, 70), (64, 70, 33)])
def test_products_and_their_gradients_are_exact_to_their_precision(precision, rows, inner, outer):
    inputs = make(rows, inner, outer)
    exact = results(tuple(x.detach().double().requires_grad_() for x in inputs))
    with products_in(precision):
        found = results(inputs)
    for x, wanted in zip(found, exact, strict=True):
        assert x.dtype == torch.float32
        assert error(x, wanted) < BOUNDS[precision]
    if precision == "bfloat16":
        assert error(found[0], exact[0]) > 1e-4, "it was not taken in bfloat16"


def test_a_transposed_weight_and_a_slice_of_rows_serve():
    x, weight, _ = make(40, 24, 10)
    wide, turned = torch.cat([x, x], dim=1), weight.t().contiguous().t()
    found = linear(wide[:, 24:].unflatten(0, (2, 20)), turned)
    assert error(found.detach().flatten(0, 1), x.detach().double() @ weight.detach().double().t()) < 1e-6


def test_the_precision_ends_with_its_context_and_a_backward_pass_follows_its_forward_pass():
    inputs = make(64, 32, 32)
    with products_in("bfloat16"):
        y = linear(*inputs)
    (after,) = torch.autograd.grad(y.square().sum(), inputs[1])
    with products_in("bfloat16"):
        (within,) = torch.autograd.grad(linear(*inputs).square().sum(), inputs[1])
    assert torch.equal(after, within)
    assert error(linear(*inputs).detach(), inputs[0].double() @ inputs[1].double().t() + inputs[2].double()) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_are_left_as_they_are(dtype):
    inputs = [x.detach().to(dtype) for x in make(64, 32, 32)]
    plain = torch.nn.functional.linear(*inputs)
    with products_in("bfloat16"):
        assert torch.equal(linear(*inputs), plain)
