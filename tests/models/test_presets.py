"""The presets have as many parameters as the published models; nothing is allocated for it."""

import pytest
import torch

from everlong.models.architectures import create
from everlong.models.language_model import LanguageModel
from everlong.models.presets import PRESETS, published_context


def finch(width: int, layers: int) -> int:
    """The count that the paper of RWKV-6 gives (arXiv 2404.05892)."""
    return 13 * width**2 * layers + 464 * width * layers + 4 * width + 2 * width * 65536


COUNTS = {  # of the published checkpoints, padded embedding included, the tied head once
    "mamba-130m": 129_135_360,
    "mamba-370m": 371_516_416,
    "mamba-790m": 793_204_224,
    "mamba-1.4b": 1_372_178_432,
    "mamba-2.8b": 2_768_345_600,
    "mamba2-130m": 128_989_632,
    "mamba2-370m": 368_346_624,
    "mamba2-780m": 780_161_280,
    "mamba2-1.3b": 1_343_757_312,
    "mamba2-2.7b": 2_702_599_680,
    "gla-340m": 341_707_776 + 32000 * 1024,  # fla's name counts the embedding and leaves out the head
    "rwkv6-1.6b": finch(2048, 24),
    "rwkv6-14b": finch(4096, 61) + 448 * 4096 * 61,  # in models 4096 wide the low-rank maps have twice the rank
    "rwkv6-3b": finch(2560, 32),
    "rwkv6-7b": finch(4096, 32) + 448 * 4096 * 32,
}
ROUGHLY = {
    "mamba2-45m": 45e6,
    "mamba2-85m": 85e6,
    "mamba2-125m": 125e6,
    "gla-70m": 70e6,
    "rwkv6-70m": 70e6,
}  # the paper gives names alone
FILES = {"rwkv6-14b": 28.1e9, "rwkv6-7b": 15.3e9}  # published sizes in bytes, two a parameter


CONTEXTS = {
    **dict.fromkeys(("mamba-130m", "mamba-370m", "mamba-790m", "mamba-1.4b", "mamba-2.8b"), 2048),
    **dict.fromkeys(("mamba2-130m", "mamba2-370m", "mamba2-780m", "mamba2-1.3b", "mamba2-2.7b"), 2048),
    **dict.fromkeys(("mamba2-45m", "mamba2-85m"), 1024),
    "mamba2-125m": None,
    **dict.fromkeys(("gla-70m", "gla-340m"), 512),
    "rwkv6-70m": 256,
    **dict.fromkeys(("rwkv6-1.6b", "rwkv6-3b", "rwkv6-7b", "rwkv6-14b"), 4096),
}
"""Tokens that each was trained at, as its authors say; no preset is without."""


def on_meta(name: str) -> LanguageModel:
    with torch.device("meta"):
        return create(name, vocab_size=PRESETS[name].config.vocab_size)


@pytest.mark.parametrize("name", list(PRESETS))
def test_parameters_are_as_many_as_published(name):
    count = sum(parameter.numel() for parameter in on_meta(name).parameters())
    assert count == COUNTS[name] if name in COUNTS else abs(count / ROUGHLY[name] - 1) < 0.05
    if name in FILES:
        assert abs(2 * count / FILES[name] - 1) < 0.005


def test_every_preset_has_a_count_and_its_training_context():
    assert {name: preset.context for name, preset in PRESETS.items()} == CONTEXTS
    assert set(PRESETS) == set(COUNTS) | set(ROUGHLY)


def test_the_context_is_found_by_a_folder_s_or_a_hub_model_s_name():
    assert published_context("state-spaces/mamba2-2.7b") == 2048
    assert published_context("state-spaces/mamba-130m-hf") == 2048
    assert published_context("/models/mamba2-45m/") == 1024
    assert published_context("/models/rwkv6-70m/") == 256
    assert published_context("rwkv6-7b") == 4096
    assert published_context("someone/gla-70m") == 512
    assert published_context("mamba2-125m") is None, "the paper trained it at three contexts"
    assert published_context("other/model") is None
