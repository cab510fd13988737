"""Progress on long work: a bar with the time left on a terminal, a line now and then in a log."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

from everlong import launch

LOG_EVERY_SECONDS = 15.0


class Task:
    """One long part. ``advance`` it by the units done; a note (the loss, say) stands beside the bar."""

    def __init__(self, console: Console, bars: Bars, description: str, total: int | None, before: int):
        self._console, self._bars, self._description, self._total = console, bars, description, total
        self._bar = bars.add_task(description, total=total, completed=before, note="")
        self._before = self._done = before  # an earlier process's units say nothing about this one's speed
        self._note, self._started = "", time.monotonic()
        self._logged = self._started

    def advance(self, units: int, note: str | None = None) -> None:
        """Counts units as done."""
        self._done += units
        self._note = self._note if note is None else note
        self._bars.update(self._bar, advance=units, note=self._note)
        now = time.monotonic()
        if not self._console.is_terminal and (now - self._logged > LOG_EVERY_SECONDS or self._done == self._total):
            self._logged = now
            self._console.print(self._line(now - self._started), highlight=False)

    def _line(self, elapsed: float) -> str:
        if self._total is None:
            return f"{self._description}: {self._done:,} done, {elapsed:.0f} s  {self._note}".rstrip()
        here = self._done - self._before
        left = elapsed / here * (self._total - self._done) if here else 0.0
        share = 100 * self._done / max(self._total, 1)
        return f"{self._description}: {share:.0f} %, {elapsed:.0f} s, {max(left, 0):.0f} s left  {self._note}".rstrip()


class Progress:
    """Where long work reports to: standard error, or any console. Of several processes only the first speaks."""

    def __init__(self, console: Console | None = None):
        self.console = console or Console(stderr=True, quiet=not launch.is_main())

    def say(self, text: str) -> None:
        """Prints a line of plain text."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def task(self, description: str, total: int | None, done: int = 0) -> Iterator[Task]:
        """A long part of ``total`` units (None: not known), of which ``done`` were done in an earlier process."""
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        with Bars(*columns, console=self.console, disable=not self.console.is_terminal) as bars:
            yield Task(self.console, bars, description, total, done)
