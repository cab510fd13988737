"""Restart: the state is thrown away every ``context`` tokens, so a target sees between 1 and ``context`` tokens."""

from collections.abc import Iterator

from everlong.policies._plan import Read


class Restart:
    """Chunks of ``context`` tokens, each from the zero state, every target scored."""

    def __init__(self, context: int):
        self.context = context
        self.name = "restart"

    @classmethod
    def for_context(cls, context: int) -> "Restart":
        """Restarts at the training length."""
        return cls(context)

    def reads(self, first: int, last: int) -> Iterator[Read]:
        """See ``Policy``."""
        for start in range((first - 1) // self.context * self.context, last, self.context):
            yield Read(start, min(start + self.context, last), max(first, start + 1))
