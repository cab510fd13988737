"""Writing the page of a run, on a disk that may be full. Free of torch."""

from pathlib import Path

from everlong.disk import is_full
from everlong.errors import RunStopped
from everlong.reports.page import write_report
from everlong.runs import Run


def write_page(run: Run, *, paper: bool = False) -> Path:
    """Writes a run's figures and page; returns the page.

    Raises:
        EverlongError: a record is there and not readable.
        RunStopped: they cannot be written (the disk is full, say); the records are all there.
    """
    try:
        return write_report(run, paper=paper)
    except Exception as error:
        because = _disk_error(error)
        if because is None:
            raise
        raise RunStopped(
            f"the page cannot be written to {run.path} ({because}); all that was measured is kept: make room, then "
            f"write it with `everlong report {run.path}`"
        ) from error


def _disk_error(error: BaseException) -> OSError | None:
    """The disk's error behind one: a PDF that finds the disk full ends in another, raised while it is closed."""
    if isinstance(error, OSError):
        return error
    behind = error.__context__
    while behind is not None and not (isinstance(behind, OSError) and is_full(behind)):
        behind = behind.__context__
    return behind
