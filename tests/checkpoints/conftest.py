"""A tiny model with no weight at its initial value."""

from typing import Any

import pytest
import torch

from everlong.models.architectures import create
from everlong.models.language_model import LanguageModel


@pytest.fixture
def model() -> LanguageModel:
    torch.manual_seed(5)
    sizes: dict[str, Any] = {"vocab_size": 21, "d_model": 16, "n_layer": 3, "headdim": 8, "d_state": 6, "ngroups": 2}
    model = create("mamba2", backend="chunked", dt_limit=(0.001, float("inf")), **sizes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model
