"""What is quick stays quick: importing everlong and asking for help leave torch alone."""

import os
import resource
import subprocess
import sys

import pytest

VERBS = ["convert", "diagnose", "doctor", "evaluate", "generate", "repair", "report", "train"]
HEAVY = "{'torch', 'transformers', 'numba', 'scipy', 'matplotlib', 'datasets'} & set(sys.modules)"


def test_import_everlong_leaves_the_heavy_packages_out():
    code = f"import sys, everlong; dir(everlong); print(*{HEAVY})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("verb", VERBS)
def test_help_leaves_the_heavy_packages_out(verb):
    code = (
        "import sys; from everlong.cli.main import main\n"
        "try: main([sys.argv[1], '--help'])\n"
        f"except SystemExit as end: print('exit', end.code, *{HEAVY})"
    )
    done = subprocess.run([sys.executable, "-c", code, verb], capture_output=True, text=True, check=True)
    assert f"everlong {verb}" in done.stdout
    assert done.stdout.splitlines()[-1] == "exit 0"


@pytest.mark.parametrize("verb", VERBS)
def test_help_takes_under_half_a_second_of_processor_time(verb):
    assert min(processor_seconds("-m", "everlong", verb, "--help") for _ in range(3)) < 0.5


def processor_seconds(*arguments: str) -> float:
    """User and system time of a Python process: other work on the machine does not count."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True, env=os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
