"""The presets have as many parameters as the published models; nothing is allocated for it."""

import pytest
import torch

from everlong.models.architectures import create
from everlong.models.language_model import LanguageModel
from everlong.models.presets import PRESETS, published_context

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
}
ROUGHLY = {"mamba2-45m": 45e6, "mamba2-85m": 85e6, "mamba2-125m": 125e6}  # the paper gives names alone


def on_meta(name: str) -> LanguageModel:
    with torch.device("meta"):
        return create(name, vocab_size=PRESETS[name].config.vocab_size)


@pytest.mark.parametrize("name", list(PRESETS))
def test_parameters_are_as_many_as_published(name):
    count = sum(parameter.numel() for parameter in on_meta(name).parameters())
    assert count == COUNTS[name] if name in COUNTS else abs(count / ROUGHLY[name] - 1) < 0.04


def test_the_context_is_found_by_a_folder_s_or_a_hub_model_s_name():
    assert published_context("state-spaces/mamba2-2.7b") == 2048
    assert published_context("state-spaces/mamba-130m-hf") == 2048
    assert published_context("/models/mamba2-45m/") == 1024
    assert published_context("mamba2-125m") is None, "the paper trained it at three contexts"
    assert published_context("other/model") is None
