"""The token shift agrees with one token at a time, and a reset hides what came before it."""

import pytest
import torch

from everlong.errors import EverlongError
from everlong.ops.token_shift import token_shift


def test_every_token_stands_beside_the_one_before_it():
    x = torch.arange(12.0).view(2, 3, 2) + 1
    state = torch.tensor([[-1.0, -2.0], [-3.0, -4.0]])
    y, final = token_shift(x, state)
    assert torch.equal(y, torch.stack([state, x[:, 0], x[:, 1]], dim=1))
    assert torch.equal(final, x[:, 2])
    assert final.untyped_storage().nbytes() == final.nbytes, "it keeps the inputs alive"


def test_any_split_gives_the_whole_and_gradients_flow_through_the_state():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 7, 3, dtype=torch.float64, generator=generator)
    state = torch.randn(2, 3, dtype=torch.float64, generator=generator, requires_grad=True)
    resets = torch.zeros(2, 7, dtype=torch.bool)
    resets[0, 0] = resets[1, 4] = True
    whole, last = token_shift(x, state, resets=resets)
    for split in range(1, 7):
        first, carried = token_shift(x[:, :split], state, resets=resets[:, :split])
        second, final = token_shift(x[:, split:], carried, resets=resets[:, split:])
        assert torch.equal(torch.cat([first, second], dim=1), whole)
        assert torch.equal(final, last)
    (gradient,) = torch.autograd.grad(whole.sum(), state)
    assert torch.equal(gradient, torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.float64)), "row 0 was reset"


def test_a_reset_hides_the_input_before_it_whatever_it_holds():
    x = torch.full((1, 3, 2), float("nan"))
    x[:, 2] = 5.0
    resets = torch.tensor([[True, False, True]])
    y, final = token_shift(x, torch.full((1, 2), float("inf")), resets=resets)
    assert torch.equal(y[0, [0, 2]], torch.zeros(2, 2))
    assert torch.equal(final, torch.full((1, 2), 5.0))


def test_the_state_keeps_its_dtype():
    y, final = token_shift(torch.ones(1, 2, 3, dtype=torch.bfloat16), torch.zeros(1, 3, dtype=torch.float32))
    assert (y.dtype, final.dtype) == (torch.bfloat16, torch.float32)


def test_no_tokens_are_an_error():
    with pytest.raises(EverlongError, match="at least one token"):
        token_shift(torch.zeros(2, 0, 3), torch.zeros(2, 3))
