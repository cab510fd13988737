"""Every flag that README.md and docs/ write behind a command is one that the command takes."""

import re
import runpy
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from unittest import mock

import pytest

from everlong.cli.main import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND = re.compile(
    r"(?:everlong|python -m (?P<module>everlong\.recipes\.\w+|benchmarks(?:\.\w+)?))(?P<rest> [^`\n#|]*)"
)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z_-]*")
ALONE = re.compile(r"`(--[^`]*)`")
ARCHITECTURES = ("gla", "mamba1", "mamba2", "rwkv6")
OTHERS = {"--standalone", "--nproc", "--batch_size", "--max_batch_size"}  # torchrun's, and the harness's
VERBS = ("convert", "diagnose", "doctor", "evaluate", "generate", "repair", "report", "train")


def documented() -> dict[str, set[str]]:
    """Command -> the flags that some page writes behind it."""
    found: dict[str, set[str]] = {}
    for page in PAGES:
        for match in COMMAND.finditer(page.read_text(encoding="utf-8")):
            first = match["rest"].split()[:1]
            name = match["module"] or next((verb for verb in VERBS if first == [verb]), None)
            if name:
                found.setdefault(name, set()).update(FLAG.findall(match["rest"]))
    return {name: flags for name, flags in found.items() if flags}


@cache
def flags_of(command: str) -> set[str]:
    """The flags that a command's help names, those of its architectures too."""
    if command in VERBS:
        asked = [[command], *([command, name] for name in ARCHITECTURES if command == "train")]
        return set().union(*(FLAG.findall(_printed(lambda a=a: main([*a, "--help"]))) for a in asked))
    with mock.patch.object(sys, "argv", [command, "--help"]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one recipe imports another
        return set(FLAG.findall(_printed(lambda: runpy.run_module(command, run_name="__main__"))))


def _printed(command: Callable[[], object]) -> str:
    printed = StringIO()
    with redirect_stdout(printed), pytest.raises(SystemExit):
        command()
    return printed.getvalue()


def test_pages_write_commands_with_flags():
    assert {"repair", "train", "everlong.recipes.arms", "benchmarks"} <= documented().keys()


@pytest.mark.parametrize("command", documented())
def test_every_documented_flag_is_one_of_its_command(command):
    unknown = documented()[command] - flags_of(command) - {"--help"}
    assert not unknown, f"{command} has no {', '.join(sorted(unknown))}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_flag_that_stands_alone_is_one_of_some_command(page):
    alone = {flag for code in ALONE.findall(page.read_text(encoding="utf-8")) for flag in FLAG.findall(code)}
    unknown = alone - set().union(*map(flags_of, documented())) - OTHERS
    assert not unknown, f"no command has {', '.join(sorted(unknown))}"
