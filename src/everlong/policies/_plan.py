"""What a plan is made of."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True)
class Read:
    """Reads x[start:stop] from the zero state and scores the targets x[scored_from] .. x[stop], both included.

    With ``recentre_every``, the drift of the mean state is taken away every so many tokens (see ``Recentre``).
    """

    start: int
    stop: int
    scored_from: int
    recentre_every: int | None = None

    @property
    def length(self) -> int:
        """Tokens read."""
        return self.stop - self.start


@runtime_checkable
class Policy(Protocol):
    """A way to read: gives the reads that score each target of a span once."""

    name: str

    @classmethod
    def for_context(cls, context: int) -> "Policy":
        """The policy's form for a training length."""
        ...

    def reads(self, first: int, last: int) -> Iterator[Read]:
        """Reads that score the targets at positions first .. last, both included; first is at least 1."""
        ...
