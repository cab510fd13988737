"""Progress on long work: lines with the time left in a log, one bar on a terminal."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from everlong import progress
from everlong.progress import Progress


class Clock:
    """A clock that the test sets."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def in_a_log():
    written = io.StringIO()
    return written, Progress(Console(file=written, force_terminal=False, width=200))


def test_a_log_gets_a_line_now_and_then_with_the_time_left(clock):
    written, to = in_a_log()
    with to.task("training zero", total=100) as task:
        for _ in range(4):
            clock.now += 10
            task.advance(10, note="loss 1.25")
    lines = written.getvalue().splitlines()
    assert lines[0] == "training zero: 20 %, 20 s, 80 s left  loss 1.25"
    assert lines[1] == "training zero: 40 %, 40 s, 60 s left  loss 1.25"
    assert len(lines) == 2


def test_the_end_is_always_said(clock):
    written, to = in_a_log()
    with to.task("reading text", total=3) as task:
        clock.now += 1
        task.advance(3)
    assert written.getvalue() == "reading text: 100 %, 1 s, 0 s left\n"


def test_the_time_left_after_a_resume_is_from_the_speed_of_this_process(clock):
    written, to = in_a_log()
    with to.task("training zero", total=1000, done=900) as task:
        clock.now += 20
        task.advance(20)
    assert written.getvalue() == "training zero: 92 %, 20 s, 80 s left\n"


def test_nothing_to_do_is_no_error():
    written, to = in_a_log()
    with to.task("reading text", total=0) as task:
        task.advance(0)
    assert written.getvalue() == "reading text: 0 %, 0 s, 0 s left\n"


def test_a_note_stays_until_the_next(clock):
    written, to = in_a_log()
    with to.task("training zero", total=2) as task:
        task.advance(1, note="loss 1.25")
        task.advance(1)
    assert written.getvalue().endswith("loss 1.25\n")


def test_a_terminal_gets_a_bar_and_no_lines():
    written = io.StringIO()
    with Progress(Console(file=written, force_terminal=True, width=200)).task("training zero", total=4) as task:
        task.advance(4, note="loss 1.25")
    assert "4/4" in written.getvalue()
    assert "s left" not in written.getvalue()


def test_said_text_is_kept_as_it_is():
    written, to = in_a_log()
    to.say("the setting [bold]context[/bold] is 64")
    assert written.getvalue() == "the setting [bold]context[/bold] is 64\n"
