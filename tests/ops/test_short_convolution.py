"""The short convolution is torch's own, over any split, and a reset hides what came before it."""

import pytest
import torch
from torch import Tensor

from everlong.errors import EverlongError
from everlong.ops.short_convolution import short_convolution

B, C, TAPS = 2, 3, 4


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def everything(pieces: list[int], length: int, resets: Tensor | None = None) -> list[Tensor]:
    """Outputs, final state, and all gradients, of ``length`` tokens read in pieces."""
    x, weight, bias, first = draw(B, length, C), draw(C, 1, TAPS, seed=1), draw(C, seed=2), draw(B, TAPS - 1, C, seed=3)
    state, parts, start = first, [], 0
    for size in pieces:
        cut = slice(start, start + size)
        part, state = short_convolution(
            x[:, cut], weight, bias, state, resets=None if resets is None else resets[:, cut]
        )
        parts.append(part)
        start += size
    y = torch.cat(parts, dim=1)
    weights = [torch.linspace(-1, 2, m.numel(), dtype=torch.float64).view_as(m) for m in (y, state)]
    loss = (y * weights[0]).sum() + (state * weights[1]).sum()
    return [y.detach(), state.detach(), *torch.autograd.grad(loss, (x, weight, bias, first))]


def equal(found: list[Tensor], wanted: list[Tensor]) -> None:
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("with_bias", [True, False])
def test_it_is_torch_s_convolution_over_the_window_and_the_inputs(with_bias):
    x, weight, state = draw(B, 9, C), draw(C, 1, TAPS, seed=1), draw(B, TAPS - 1, C, seed=3)
    bias = draw(C, seed=2) if with_bias else None
    y, final = short_convolution(x, weight, bias, state)
    inputs = torch.cat([state, x], dim=1)
    torch.testing.assert_close(y, torch.nn.functional.conv1d(inputs.mT, weight, bias, groups=C).mT)
    assert torch.equal(final, inputs[:, -(TAPS - 1) :])
    assert final.untyped_storage().nbytes() == final.nbytes, "it keeps the inputs alive"


@pytest.mark.parametrize("length", [1, 2, 3, 4, 11])
@pytest.mark.parametrize("starts", [None, [0, 5], [1], [10], [3, 4, 5]], ids=str)
def test_every_split_gives_the_whole(length, starts):
    resets = None
    if starts is not None:
        resets = torch.zeros(B, length, dtype=torch.bool)
        resets[0, [t for t in starts if t < length]] = True
    whole = everything([length], length, resets)
    for split in range(1, length):
        equal(everything([split, length - split], length, resets), whole)
    equal(everything([1] * length, length, resets), whole)


def test_a_reset_hides_the_inputs_before_it_whatever_they_hold():
    x = draw(1, 8, C).detach()
    x[:, :5] = torch.nan
    resets = torch.zeros(1, 8, dtype=torch.bool)
    resets[0, [0, 5]] = True
    weight = draw(C, 1, TAPS, seed=1).detach()
    y, final = short_convolution(x, weight, None, torch.full((1, TAPS - 1, C), torch.inf).double(), resets=resets)
    alone, wanted = short_convolution(x[:, 5:], weight, None, torch.zeros(1, TAPS - 1, C).double())
    assert torch.equal(y[:, 5:], alone)
    assert torch.equal(final, wanted)


def test_no_tokens_are_an_error():
    with pytest.raises(EverlongError, match="at least one token"):
        short_convolution(torch.zeros(2, 0, C), torch.zeros(C, 1, TAPS), None, torch.zeros(2, TAPS - 1, C))
