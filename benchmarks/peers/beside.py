"""A peer in a process of its own: told a line, it does a piece of work and answers with the seconds that it took.

A process of its own because what suits a peer does not suit us: an OpenMP that it brings, or how idle threads wait
(OMP_WAIT_POLICY, which a process reads once). Spinning suits many short steps on a quiet machine, and costs most of the
speed on one that others use; so a peer is tried both ways, and the faster is taken. While it waits for a line it does
nothing: by default OpenMP's threads spin for a few milliseconds and sleep then.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.contracts import ROOT
from benchmarks.measure import NotAvailable

WAITS = ("PASSIVE", None)  # None: as OpenMP does by default
Peer = TypeVar("Peer", bound="Beside")


class Beside:
    """A process that is started once and asked often.

    Args:
        name: of the peer, for people.
        module: run with ``python -m``.
        arguments: behind it.
        wait: how its idle threads wait, OMP_WAIT_POLICY; None: as its OpenMP does by default.
    """

    def __init__(self, name: str, module: str, arguments: Sequence[str], wait: str | None):
        self._name = name
        environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
        if wait:
            environment["OMP_WAIT_POLICY"] = wait
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env=environment,
        )

    def ask(self, line: str) -> float:
        """Lets it work; returns the seconds.

        Raises:
            NotAvailable: it has stopped; with the last line that it said.
        """
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            process.stdin.write(line + "\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended: what it said is read below
        answer = process.stdout.readline()
        if not answer:
            said = process.stderr.read().strip().splitlines() or ["nothing"]
            raise NotAvailable(f"{self._name} stopped: {said[-1]}")
        return float(answer)

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate(timeout=60)


def fastest(start: Callable[[str | None], Peer], first: Callable[[Peer], float]) -> Peer:
    """The peer with its threads waiting as is best for it here; the other is ended.

    Args:
        start: starts it, by how its threads wait.
        first: lets it do some work; returns the seconds.
    """
    peers = [start(wait) for wait in WAITS]
    fast, slow = sorted(peers, key=first)
    slow.close()
    return fast
