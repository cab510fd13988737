"""How a recipe is started as a program: flags from its configuration, errors in a line, exit codes as of `everlong`."""

import os
import sys
from collections.abc import Callable
from typing import TypeVar

import tyro

from everlong.errors import EverlongError, RunInterrupted

Recipe = TypeVar("Recipe")


def start(main: Callable[[Recipe], object], recipe: type[Recipe]) -> int:
    """Runs a recipe by the flags it was given; returns the exit code."""
    # as `everlong` does: threads that spin while they wait are slow beside any other work
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        done = main(tyro.cli(recipe, config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagConversionOff)))
        return done if isinstance(done, int) else 0
    except EverlongError as error:
        print(f"everlong: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return RunInterrupted.exit_code
