"""`everlong report`."""

from rich.console import Console

from everlong.workflows.config import ReportConfig


def run(config: ReportConfig) -> int:
    """Writes figures and page again, and prints the page's path."""
    from everlong.workflows.report import report

    Console().print(str(report(config)), soft_wrap=True, highlight=False, markup=False)
    return 0
