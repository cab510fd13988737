"""No figure for a path that computes something else: contract suites are run first, and a failure refuses the row."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = ("tests/models/test_language_model_contract.py", "tests/models/test_state_contract.py")
OPS = "tests/ops/test_every_op.py"
SUITES: dict[str, tuple[tuple[str, ...], str]] = {
    "gla": (MODELS, "gla and auto"),
    "mamba1": (MODELS, "mamba1 and auto"),
    "mamba2": (MODELS, "mamba2 and auto"),
    "rwkv6": (MODELS, "rwkv6 and auto"),
    "gated_linear_attention": (("tests/ops/test_gated_linear_attention.py", OPS), "cpu and not scan"),
    "selective_scan": (("tests/ops/test_selective_scan.py", OPS), "cpu and not attention"),
}
"""A path that is measured -> the files of its contract suite, and which of their tests run on that path."""


class Refused(Exception):
    """The contract suite of a path failed, or tested nothing: no figure of it is reported."""


@cache
def require(path: str) -> str:
    """Runs the contract suite of a path, once a process.

    Returns:
        What passed, for the record.

    Raises:
        Refused: a test failed, or none ran.
    """
    files, keyword = SUITES[path]
    return run_suite(files, keyword)


def run_suite(files: Sequence[str], keyword: str) -> str:
    """Runs the tests of some files that a keyword selects; see ``require``."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files, "-k", keyword]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # tiny models
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    last = (result.stdout.strip() or result.stderr.strip() or "no output").splitlines()[-1]
    what = f"{' '.join(files)} -k {keyword!r}"
    passed = re.search(r"(\d+) passed", last)
    if result.returncode or not passed:
        raise Refused(f"{what}: {last}")
    return f"{what}: {passed[1]} passed"
