"""A model's folder in any format."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from everlong.loading import save
from everlong.models.architectures import create


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str], Path]:
    """Makes a model's folder in a format."""

    def make(name: str) -> Path:
        torch.manual_seed(1)
        sizes: dict[str, Any] = {"vocab_size": 32, "d_model": 16, "n_layer": 3, "headdim": 8, "d_state": 8}
        save(create("mamba2", **sizes), tmp_path / "model", format=name)
        return tmp_path / "model"

    return make
