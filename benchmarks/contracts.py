"""No figure for a path that computes something else: contract suites are run first, and a failure refuses the row."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = "tests/models/test_language_model_contract.py"
SUITES: dict[str, tuple[str, str]] = {
    "gla": (MODELS, "gla and auto"),
    "mamba1": (MODELS, "mamba1 and auto"),
    "mamba2": (MODELS, "mamba2 and auto"),
    "rwkv6": (MODELS, "rwkv6 and auto"),
    "gated_linear_attention": ("tests/ops/test_gated_linear_attention.py", "cpu"),
    "selective_scan": ("tests/ops/test_selective_scan.py", "cpu"),
}
"""A path that is measured -> the file of its contract suite, and which of its tests run on that path."""


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
    file, keyword = SUITES[path]
    return run_suite(file, keyword)


def run_suite(file: str, keyword: str) -> str:
    """Runs the tests of a file that a keyword selects; see ``require``."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", file, "-k", keyword]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # tiny models
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    last = (result.stdout.strip() or result.stderr.strip() or "no output").splitlines()[-1]
    passed = re.search(r"(\d+) passed", last)
    if result.returncode or not passed:
        raise Refused(f"{file} -k {keyword!r}: {last}")
    return f"{file} -k {keyword!r}: {passed[1]} passed"
