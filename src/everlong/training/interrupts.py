"""Ctrl-C and SIGTERM while a step is under way: it is finished first."""

import signal
import threading
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """A context in which the first Ctrl-C or SIGTERM sets ``asked``, and the second interrupts at once.

    Handlers are set in the main thread only (Python allows no other), and those found are put back at the end.
    """

    def __init__(self):
        self.asked = False
        self._found: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Interrupts":
        if threading.current_thread() is threading.main_thread():
            self._found = {number: signal.signal(number, self._handle) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._found.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
