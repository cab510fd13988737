"""A training step, with the kernels and oneDNN's products: the same bits from run to run, and on any number of threads
the same gradients to 2e-5 of the largest of each tensor (seen: the same bits), since a library may cut its sums."""

import pytest
import torch
from torch import Tensor

from .tiny import names, tiny_model, tokens_for


def step(architecture: str, threads: int) -> dict[str, Tensor]:
    model = tiny_model(architecture, backend="auto", dtype=torch.float32, d_model=64)
    tokens = tokens_for(model, 4, 96)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        output = model(tokens)
        output.logits.square().mean().backward()
    finally:
        torch.set_num_threads(before)
    found = {f"gradient of {n}": p.grad for n, p in model.named_parameters() if p.grad is not None}
    return {"logits": output.logits.detach(), **found}


@pytest.mark.parametrize("architecture", names())
def test_a_step_is_the_same_to_the_bit_from_run_to_run_and_to_2e_5_on_other_threads(architecture):
    one, two, again = step(architecture, 1), step(architecture, 2), step(architecture, 2)
    for name, x in two.items():
        assert torch.equal(x, again[name]), name
        assert (x - one[name]).abs().max() <= 2e-5 * one[name].abs().max(), name
