"""Record of a conversion between checkpoint formats, with its proof."""

from dataclasses import dataclass

from everlong.records._record import Record
from everlong.records.doctor import Check


@dataclass(frozen=True, kw_only=True)
class Conversion(Record):
    """A model written in another format, and the proof that it is the same model."""

    source: str
    source_format: str
    target: str
    target_format: str
    architecture: str
    parameters: int
    checks: tuple[Check, ...]
    rows: int
    length: int
    """Random tokens read: rows x length."""
    seed: int
    backend: str
    device: str
    dtype: str
    """What was written."""
    seconds: float

    @property
    def wrong(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if not check.ok)
