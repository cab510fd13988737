"""Tiny models with no weight at its initial value."""

from typing import Any

import pytest
import torch

from everlong.models.architectures import create
from everlong.models.language_model import LanguageModel

SIZES: dict[str, dict[str, Any]] = {
    "mamba1": {"d_state": 6, "dt_rank": 2, "conv_bias": False},
    "mamba2": {"d_state": 6, "headdim": 8, "ngroups": 2, "dt_limit": (0.001, float("inf"))},
}


def make(architecture: str, **config: Any) -> LanguageModel:
    torch.manual_seed(5)
    sizes: dict[str, Any] = {"vocab_size": 21, "d_model": 16, "n_layer": 3, **SIZES[architecture], **config}
    model = create(architecture, backend="chunked", **sizes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


@pytest.fixture(params=list(SIZES))
def model(request: pytest.FixtureRequest) -> LanguageModel:
    return make(request.param)


@pytest.fixture
def mamba2() -> LanguageModel:
    return make("mamba2")


@pytest.fixture
def falcon_mamba() -> LanguageModel:
    return make("mamba1", bcdt_rms=True, bcdt_rms_epsilon=1e-5)
