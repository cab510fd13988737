"""BABILong as it was published: RMT-team/babilong on the hub, or a folder laid out like it."""

import hashlib
from pathlib import Path

from everlong.data.dataset import Dataset
from everlong.errors import EverlongError
from everlong.tasks._babi import Question

COLUMNS = ("input", "question", "target")
KIBI = 1 << 10


class Published:
    """Samples by length and task: configuration ``0k``, ``1k``, ..., split ``qa1`` to ``qa10``.

    Args:
        place: an id ``owner/name`` of the hub, or a folder.
    """

    def __init__(self, place: str):
        folder = Path(place).expanduser()
        self._place: str | Path = folder if folder.is_dir() else place
        self._held: tuple[tuple[str, int], tuple[Question, ...]] | None = None

    def samples(self, name: str, length: int) -> tuple[Question, ...]:
        """All samples of a cell; a sample's only "fact" is its whole text. Those of the last cell are held.

        Raises:
            EverlongError: a length that is no configuration, or what the library ``datasets`` says.
        """
        if self._held is None or self._held[0] != (name, length):
            rows = Dataset(self._place, configuration=_configuration(length), split=name, stream=False).rows(COLUMNS)
            found = tuple(Question((row["input"].strip(),), row["question"], row["target"]) for row in rows)
            if not found:
                raise EverlongError(f"--babilong {self._place} has no sample of {name} at {_configuration(length)}")
            self._held = ((name, length), found)
        return self._held[1]

    def fingerprint(self, name: str, length: int) -> str:
        """Of a cell's samples, in hex."""
        return hashlib.sha256(repr(self.samples(name, length)).encode()).hexdigest()


def _configuration(length: int) -> str:
    """As lengths are written there: 0k, 4k, 1M."""
    if length % KIBI:
        raise EverlongError(f"--lengths {length} is no length of the published sets; give 0k, 1k, 2k, 4k, ...")
    return f"{length // KIBI**2}M" if length and length % KIBI**2 == 0 else f"{length // KIBI}k"
