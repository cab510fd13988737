"""The floor under a step has every product of the model, and no other."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import everlong.ops.products
from benchmarks import shapes
from benchmarks.rows.training import LIBRARIES, products, weight_shapes

COUNT = 64


@pytest.mark.parametrize("architecture", list(shapes.TINY))
def test_the_floor_does_as_many_operations_as_the_products_of_a_forward_and_backward_pass(architecture, monkeypatch):
    monkeypatch.setattr(everlong.ops.products, "_vectors_are_wide", lambda: False)  # torch's own products are counted
    model = shapes.model(shapes.TINY[architecture], perturbed=True)
    with FlopCounterMode(display=False) as step:
        model(shapes.tokens(1, COUNT)).logits.sum().backward()
    work = products(model, COUNT, LIBRARIES["torch.mm"])
    with FlopCounterMode(display=False) as floor:
        work()
    counted = step.get_flop_counts()["Global"]
    convolutions = sum(flops for op, flops in counted.items() if "conv" in str(op))
    assert floor.get_total_flops() == step.get_total_flops() - convolutions


@pytest.mark.parametrize("library", list(LIBRARIES))
def test_every_library_gives_the_product(library):
    a, b = torch.randn(5, 7), torch.randn(7, 3).t()
    torch.testing.assert_close(LIBRARIES[library](a, b), a @ b.t())


def test_each_weight_is_met_once_and_low_ranks_count():
    found = weight_shapes(shapes.model(shapes.TINY["rwkv6"]))
    assert found.count((256, 32)) == 5 * 4  # the five interpolations of four layers
    assert found[-1] == (256, 64)
    assert torch.tensor(found).min() == 32
