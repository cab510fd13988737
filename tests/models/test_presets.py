"""The presets have the published numbers of parameters, counted without memory."""

import pytest
import torch

from everlong.models.architectures import ARCHITECTURES
from everlong.models.presets import PRESETS, published_context


def count(name: str) -> int:
    config = PRESETS[name].config
    with torch.device("meta"):
        model = ARCHITECTURES[config.architecture](config)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("name", "width", "layers"), [("rwkv6-1.6b", 2048, 24), ("rwkv6-3b", 2560, 32)])
def test_finch_has_the_count_of_its_paper(name, width, layers):
    """13 D^2 L + 464 D L + 4 D + 2 D V: the parameter count of Finch in arXiv 2404.05892."""
    assert count(name) == 13 * width**2 * layers + 464 * width * layers + 4 * width + 2 * width * 65536


@pytest.mark.parametrize(
    ("name", "millions", "digits"),
    [
        ("gla-70m", 66.8, 1),  # the paper's 70M, within five percent
        ("gla-340m", 374, 0),  # 341.7 with the embedding counted once, which is what its name says
        ("rwkv6-70m", 69.5, 1),
        ("rwkv6-1.6b", 1600, -2),
        ("rwkv6-3b", 3100, -2),
        ("rwkv6-7b", 7636, 0),
        ("rwkv6-14b", 14070, -1),  # the published file has 28.1 GB in two bytes a parameter
    ],
)
def test_sizes_are_those_of_the_names(name, millions, digits):
    assert round(count(name) / 1e6, digits) == millions


def test_every_preset_has_a_context_that_its_folder_name_finds():
    assert {name: published_context(f"someone/{name}") for name in PRESETS} == {
        name: preset.context for name, preset in PRESETS.items()
    }
    assert published_context("gla-70m") == 512
    assert published_context("rwkv6-70m") == 256
    assert published_context("rwkv6-7b") == 4096
