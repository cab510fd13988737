"""Losses by pieces are torch's cross_entropy, with its gradient, in memory that the vocabulary does not set."""

import pytest
import torch
from torch.nn import functional as F

from everlong.ops import cross_entropy
from everlong.ops.cross_entropy import token_losses


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
@pytest.mark.parametrize(("rows", "vocabulary"), [(1, 1), (7, 5), (9, 40)])
def test_losses_and_gradients_are_torch_s(dtype, bound, rows, vocabulary, monkeypatch):
    monkeypatch.setattr(cross_entropy, "ELEMENTS", 80)  # two rows at once, the last piece shorter
    random = torch.Generator().manual_seed(rows)
    logits = (5 * torch.randn(rows, vocabulary, generator=random)).to(dtype).requires_grad_()
    targets = torch.randint(vocabulary, (rows,), generator=random)
    weights = torch.randn(rows, generator=random).double()
    found, wide = token_losses(logits, targets), logits.detach().double().requires_grad_()
    wanted = F.cross_entropy(wide, targets, reduction="none")
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)  # of the same rounded logits
    (gradient,) = torch.autograd.grad((found * weights.to(found.dtype)).sum(), logits)
    (exact,) = torch.autograd.grad((wanted * weights).sum(), wide)
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient.double(), exact, rtol=bound, atol=bound)


def test_logits_that_are_far_apart_or_not_finite_are_not_hidden():
    logits = torch.tensor([[1e4, -1e4], [torch.nan, 0.0], [torch.inf, 0.0]])
    losses = token_losses(logits, torch.tensor([1, 1, 0]))
    assert losses[0] == 2e4
    assert losses[1:].isnan().all()
