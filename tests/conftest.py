"""Shared by all tests: shapes are checked while they run, and the data beside the repository is found or skipped."""

import os
from pathlib import Path

os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # before torch is imported: see everlong.cli.main

import pytest
import torch
from jaxtyping import install_import_hook

torch.set_num_threads(1)  # tiny models lose more to the threads than they gain
install_import_hook("everlong", "beartype.beartype")  # before any test imports everlong

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The data beside the repository; a test that needs it is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no data at {SHARED}")
    return SHARED
