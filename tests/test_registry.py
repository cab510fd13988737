"""Registries: lazy, alphabetical, and an unknown name is answered with the known ones."""

import subprocess
import sys

import pytest

from everlong.checkpoints.formats import FORMATS
from everlong.data.orders import DATA_ORDERS
from everlong.errors import EverlongError
from everlong.interventions import methods
from everlong.models import architectures
from everlong.ops.backends import GATED_LINEAR_ATTENTION
from everlong.policies.registry import POLICIES
from everlong.registry import Registry

REGISTRIES = [
    architectures.ARCHITECTURES,
    architectures.CONFIGS,
    DATA_ORDERS,
    FORMATS,
    GATED_LINEAR_ATTENTION,
    methods.CONFIGS,
    methods.INTERVENTIONS,
    POLICIES,
]


def test_an_unknown_member_is_answered_with_the_known_ones():
    registry = Registry("fruit", {"pear": "fruits:Pear", "apple": "fruits:Apple"})
    with pytest.raises(EverlongError, match="unknown fruit 'plum'; known: apple, pear"):
        registry["plum"]


def test_asking_what_there_is_imports_nothing():
    registry = Registry("fruit", {"pear": "no_such_module:Pear", "apple": "no_such_module:Apple"})
    assert list(registry) == ["apple", "pear"]
    assert len(registry) == 2
    assert "apple" in registry
    assert "plum" not in registry
    with pytest.raises(ModuleNotFoundError):
        registry["apple"]


def test_a_member_is_what_stands_at_its_address():
    assert Registry("error", {"ours": "everlong.errors:EverlongError"})["ours"] is EverlongError


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.family)
def test_every_member_can_be_imported(registry):
    assert all(callable(member) for member in registry.values())


@pytest.mark.parametrize(
    "module", ["everlong.data.orders", "everlong.interventions.methods", "everlong.policies.registry"]
)
def test_listing_the_choices_for_help_needs_no_torch(module):
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
