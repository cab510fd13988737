"""Carry: the document is read once from its beginning, the state carried all the way."""

from collections.abc import Iterator

from everlong.policies._plan import Read


class Carry:
    """One read from the document's beginning."""

    name = "carry"

    @classmethod
    def for_context(cls, context: int) -> "Carry":
        """The same for every training length."""
        return cls()

    def reads(self, first: int, last: int) -> Iterator[Read]:
        """See ``Policy``."""
        yield Read(0, last, first)
