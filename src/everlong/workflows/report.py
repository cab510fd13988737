"""`everlong report`: figures and page again, from the records alone, without torch."""

from pathlib import Path

from everlong.runs import Run
from everlong.workflows._page import write_page
from everlong.workflows.config import ReportConfig


def report(config: ReportConfig) -> Path:
    """Writes a run's figures and page again; returns the page."""
    with Run.open(config.run) as run:
        return write_page(run, paper=config.paper)
