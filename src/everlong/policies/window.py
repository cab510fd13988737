"""Window: every target is read from the zero state with at least ``width - width // scored`` tokens before it."""

from collections.abc import Iterator

from everlong.policies._plan import Read


class Window:
    """Windows of ``width`` tokens that start anew, of which only the last ``width // share`` targets are scored.

    At the document's beginning, where fewer than ``width`` tokens exist, a window is the whole prefix.
    """

    def __init__(self, width: int, share: int = 8):
        self.width = width
        self.stride = max(1, width // share)
        self.name = f"window:{width}"

    @classmethod
    def for_context(cls, context: int) -> "Window":
        """Windows of the training length."""
        return cls(context)

    def reads(self, first: int, last: int) -> Iterator[Read]:
        """See ``Policy``."""
        for scored_from in range(first, last + 1, self.stride):
            stop = min(scored_from + self.stride - 1, last)
            yield Read(max(0, stop - self.width), stop, scored_from)
