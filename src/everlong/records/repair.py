"""Records of a repair: the table, and how it was decided. Positions and losses as in ``diagnosis``."""

from dataclasses import dataclass
from typing import Literal

from everlong.records._record import Record
from everlong.records.diagnosis import Excess

Meaning = Literal["reading on harms", "no better than restarting", "pays", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Row(Record):
    """One model in the table of a repair."""

    label: str
    in_range_perplexity: float
    own: Excess
    """Against its own window of the training length."""
    own_best: Excess
    """Against its own best window, of any width."""
    control: Excess
    """Against the zero control's window of the training length (before repair: its own)."""
    control_best: Excess
    """Against the zero control's best window, of any width."""
    meaning: tuple[Meaning, ...]
    """For each range."""
    verdict: str


@dataclass(frozen=True, kw_only=True)
class Repair(Record):
    """The repair as a whole: the table, and how it was decided."""

    context: int
    """The training length in tokens."""
    tolerance: float
    """Excess in nats that does not count as harm."""
    rows: tuple[Row, ...]
    headroom: tuple[float, ...]
    """For each range, nats that the control gains by its best longer window over its window of the training length."""
    proposal: str
    """How the reset probability and the steps were chosen, in words."""
    sentence: str
    """The outcome in one sentence."""
    warnings: tuple[str, ...]
    seconds: dict[str, float]
    """Phase -> wall-clock seconds."""
