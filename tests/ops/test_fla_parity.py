"""Parity with flash-linear-attention's own naive references of GLA and RWKV-6, each loaded as a single file."""

from importlib.metadata import files
from importlib.util import module_from_spec, spec_from_file_location

import pytest
import torch

from everlong.ops.backends import GATED_LINEAR_ATTENTION

B, T, H, K, V = 2, 37, 3, 8, 6


def naive(path: str, name: str):
    """A function of fla-core, without importing the package (which would want Triton)."""
    (file,) = [file for file in files("fla-core") or () if str(file) == path]
    spec = spec_from_file_location(name, str(file.locate()))
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


@pytest.fixture
def inputs():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).requires_grad_()

    state = (torch.arange(K)[:, None] * 10.0 + torch.arange(V)).div(30).expand(B, H, K, V).clone().requires_grad_()
    decays = -torch.exp(2 * torch.randn(B, T, H, K, generator=generator) - 2)
    return draw(B, T, H, K), draw(B, T, H, K), draw(B, T, H, V), decays.requires_grad_(), state, draw(H, K)


def close(ours, theirs, leaves):
    """Outputs, final state and every gradient."""
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=2e-5)
    weights = [torch.linspace(-1, 1, x.numel()).view_as(x) for x in ours]
    gradients = [
        torch.autograd.grad(torch.stack([(x * w).sum() for x, w in zip(outputs, weights, strict=True)]).sum(), leaves)
        for outputs in (ours, theirs)
    ]
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("backend", GATED_LINEAR_ATTENTION)
def test_gla_equals_flas_naive_reference(backend, inputs):
    *leaves, _ = inputs
    q, k, v, decays, state = leaves
    ours = GATED_LINEAR_ATTENTION[backend](q * K**-0.5, k, v, decays, state)
    theirs = naive("fla/ops/gla/naive.py", "naive_recurrent_gla")(q, k, v, decays, state, True)
    close(ours, theirs, leaves)


@pytest.mark.parametrize("backend", GATED_LINEAR_ATTENTION)
def test_rwkv6_equals_flas_naive_reference(backend, inputs):
    q, k, v, decays, state, bonus = inputs
    ours = GATED_LINEAR_ATTENTION[backend](q, k, v, decays, state, bonus=bonus)
    heads_first = [x.transpose(1, 2) for x in (q, k, v, decays)]
    reference = naive("fla/ops/rwkv6/recurrent_naive.py", "naive_recurrent_rwkv6")
    o, final = reference(*heads_first, bonus, scale=1.0, initial_state=state, output_final_state=True)
    close(ours, (o.transpose(1, 2), final), inputs)
