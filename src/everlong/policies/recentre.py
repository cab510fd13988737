"""Recentre: the state is carried, and every ``context`` tokens the drift of its mean is taken away.

Training-free: after t = 2T, 3T, ... tokens, E[S_t] - E[S_T] is subtracted from the recurrent leaves. The expectations
are over calibration rows, other documents that are read, and recentred, beside: so E[S_t] is that of states under this
very policy. What a document has put into the state stays; what every document puts there does not pile up.
"""

from collections.abc import Iterator

from everlong.policies._plan import Read


class Recentre:
    """One read from the document's beginning, recentred every ``context`` tokens. Readers must be given calibration."""

    def __init__(self, context: int):
        self.context = context
        self.name = "recentre"

    @classmethod
    def for_context(cls, context: int) -> "Recentre":
        """Recentres every training length."""
        return cls(context)

    def reads(self, first: int, last: int) -> Iterator[Read]:
        """See ``Policy``."""
        yield Read(0, last, first, recentre_every=self.context)
