"""Ctrl-C and SIGTERM while a step is under way: it is finished first."""

import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context in which Ctrl-C or SIGTERM sets ``asked``, and a second Ctrl-C interrupts at once.

    Of several processes none interrupts at once: the others would wait for it, and torchrun passes on a signal that
    its processes may have had already. A second SIGTERM says nothing new. Handlers are set in the main thread only
    (Python allows no other), and those found are put back at the end.

    Args:
        alone: whether this process is the only one of its run.
    """

    def __init__(self, *, alone: bool = True):
        self.asked = False
        self._alone, self._had_ctrl_c = alone, False
        self._found: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._found = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._found.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            if self._had_ctrl_c and self._alone:
                raise KeyboardInterrupt
            self._had_ctrl_c = True
        self.asked = True
