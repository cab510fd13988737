import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="package")
def finished(tmp_path_factory):
    """A finished repair with its report, written once: path of the run folder."""
    from synthetic import make_run

    from everlong.reports.page import write_report

    with make_run(tmp_path_factory.mktemp("reports") / "run") as run:
        write_report(run)
        return run.path
