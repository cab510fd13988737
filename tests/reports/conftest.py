import pytest

from everlong.reports.page import write_report
from tests.reports.synthetic import make_run


@pytest.fixture(scope="package")
def finished(tmp_path_factory):
    """A finished repair with its report, written once: path of the run folder."""
    with make_run(tmp_path_factory.mktemp("reports") / "run") as run:
        write_report(run)
        return run.path
