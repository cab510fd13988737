"""Shared by all tests: shapes are checked while they run, and the data beside the repository is found or skipped."""

from pathlib import Path

import pytest
from jaxtyping import install_import_hook

install_import_hook("everlong", "beartype.beartype")  # before any test imports everlong

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The data beside the repository; a test that needs it is skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no data at {SHARED}")
    return SHARED
