"""A tiny model and tiny text for the verbs."""

from pathlib import Path

import numpy as np
import pytest
import torch

from everlong.loading import save
from everlong.models.architectures import create

TEXT = "the state of a model that reads on and on is met by no row of training and so it breaks"
QUICK = ["--max-length", "256", "--documents", "8", "--targets-per-bucket", "16", "--backend", "chunked"]


def tiny_model(seed: int = 0):
    torch.manual_seed(seed)
    return create("mamba2", vocab_size=256, d_model=16, n_layer=2, d_state=8, headdim=8, A_init_range=(0.01, 1.0))


@pytest.fixture(scope="session")
def model(tmp_path_factory) -> Path:
    """A folder in Everlong's format, context 16, bytes."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    save(tiny_model(), folder, context=16, tokenizer="bytes")
    return folder


@pytest.fixture(scope="session")
def text(tmp_path_factory) -> Path:
    """Twenty files of 600 bytes."""
    folder = tmp_path_factory.mktemp("text")
    generator = np.random.default_rng(0)
    for index in range(20):
        (folder / f"{index:02d}.txt").write_text(" ".join(generator.choice(TEXT.split(), 200))[:600], encoding="utf-8")
    return folder
