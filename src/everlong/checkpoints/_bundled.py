"""The model that comes with the package."""

from importlib.resources import files
from pathlib import Path

BUNDLED = "bundled"
"""What it is called where a model is named."""


def bundled_folder() -> Path:
    """Where it lies."""
    return Path(str(files("everlong"))) / "bundled"
