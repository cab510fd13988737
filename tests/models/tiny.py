"""The tiny models that the contract suites run on: one entry an architecture."""

from typing import Any

import torch
from torch import Tensor

from everlong.models.architectures import ARCHITECTURES, create
from everlong.models.language_model import LanguageModel
from everlong.state import RecurrentState

TINY: dict[str, dict[str, Any]] = {
    "gla": {
        "vocab_size": 11,
        "d_model": 8,
        "n_layer": 2,
        "num_heads": 2,
        "gate_low_rank_dim": 3,
        "gate_logit_normalizer": 4.0,
        "use_short_conv": True,
        "intermediate_size": 10,
    },
    "mamba1": {
        "vocab_size": 11,
        "pad_vocab_size_multiple": 4,
        "d_model": 8,
        "n_layer": 2,
        "d_state": 3,
        "dt_rank": 2,
        "dt_min": 0.03,
        "dt_max": 0.3,
    },
    "mamba2": {
        "vocab_size": 11,
        "pad_vocab_size_multiple": 4,
        "d_model": 8,
        "n_layer": 2,
        "headdim": 4,
        "d_state": 6,
        "ngroups": 2,
        "A_init_range": (0.1, 1.0),
        "dt_min": 0.1,
        "dt_max": 0.5,
    },
    "rwkv6": {
        "vocab_size": 11,
        "d_model": 8,
        "n_layer": 2,
        "headdim": 4,
        "expand_v": 1.5,
        "proj_low_rank_dim": 2,
        "gate_low_rank_dim": 3,
        "intermediate_size": 10,
    },
}
"""Small, with states that matter: slow decays, large steps, K and V different, several heads and groups."""


def tiny_model(
    architecture: str, *, backend: str = "chunked", dtype: torch.dtype = torch.float64, **config: Any
) -> LanguageModel:
    """A perturbed tiny model: no weight is zero or one, so that no gradient vanishes."""
    assert architecture in TINY, (
        f"architecture {architecture!r} has no entry in tests/models/tiny.py: give it a tiny one"
    )
    torch.manual_seed(7)
    model = create(architecture, backend=backend, **{**TINY[architecture], **config})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model.to(dtype)


DECAYS = {
    "A_log": (-12.0, 9.0),
    "gk_proj.1.bias": (-300.0, 15.0),
    "time_decay": (-15.0, 4.3),
}
"""Parameters that make the decays, and the ends between which their elements give log-decays of -1e-6 to -60."""


def plant_decays(model: LanguageModel) -> LanguageModel:
    """The same model with decays of every strength in each layer, whatever the tokens are."""
    planted = 0
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            for ending, ends in DECAYS.items():
                if name.endswith(ending):
                    parameter.copy_(torch.linspace(*ends, parameter.numel()).view(parameter.shape))
                    planted += 1
    assert planted == model.config.n_layer, (
        f"{model.config.architecture} has no entry in DECAYS of tests/models/tiny.py"
    )
    return model


def tokens_for(model: LanguageModel, batch_size: int, length: int, *, seed: int = 0) -> Tensor:
    """Random token ids."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.vocab_size, (batch_size, length), generator=generator)


def asymmetric_state(model: LanguageModel, batch_size: int) -> RecurrentState:
    """A non-zero state without symmetry, of order one, that differs between rows: a transposed axis shows."""

    def ramp(leaf: Tensor) -> Tensor:
        values = torch.arange(leaf.numel(), dtype=torch.float64) / leaf.numel()
        return (values.view(leaf.shape) * 1.5 - 0.5).to(leaf.dtype)

    return model.zero_state(batch_size).map(ramp)


def with_gradients(state: RecurrentState) -> RecurrentState:
    """The same values as leaves of a graph."""
    return state.map(lambda leaf: leaf.detach().clone().requires_grad_())


def objective(logits: Tensor, state: RecurrentState) -> Tensor:
    """A scalar in which every logit and every element of the final state counts differently."""
    total = logits.new_zeros((), dtype=torch.promote_types(logits.dtype, torch.float32))
    for tensor in (logits, *state.leaves):
        wide = tensor.to(total.dtype)
        total = total + (wide * torch.linspace(-1.0, 1.3, wide.numel(), dtype=wide.dtype).view(wide.shape)).sum()
    return total


def names() -> list[str]:
    """The architectures that the suites run over."""
    return list(ARCHITECTURES)
