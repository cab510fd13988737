"""The recipes run on what the verbs are tested on."""

from tests.cli.conftest import model, text

__all__ = ["model", "text"]
