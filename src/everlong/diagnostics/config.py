"""Settings of a diagnosis, free of torch."""

import math
from dataclasses import dataclass
from typing import Annotated

import tyro

from everlong.errors import EverlongError


@dataclass(frozen=True, kw_only=True)
class DiagnosisConfig:
    """How far to read, on how many documents, and how sure to be."""

    max_length: int = 16384
    """How far to read, in tokens."""
    documents: int = 32
    """Held-out documents to read, the longer than max_length first."""
    targets_per_bucket: int = 256
    """Targets that each document gives to each range of positions, read anew under every window."""
    tolerance: float = 0.02
    """Excess loss in nats that does not count as harm."""
    confidence: float = 0.95
    """Of the intervals, over all ranges of positions together."""
    quick: bool = False
    """A rough answer in a fraction of the time: windows at half stride and fewer targets; where the verb is diagnose,
    12 documents at most and the cheap measures alone."""

    def __post_init__(self) -> None:
        for name in ("max_length", "documents", "targets_per_bucket"):
            if getattr(self, name) < 1:
                raise EverlongError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if not 0 <= self.tolerance < math.inf:
            raise EverlongError(f"tolerance is {self.tolerance}; it must be 0 or more (nats a token)")
        if not 0 < self.confidence < 1:
            raise EverlongError(f"confidence is {self.confidence}; it must lie between 0 and 1")

    @property
    def window_share(self) -> int:
        """A window scores its last width // window_share targets."""
        return 2 if self.quick else 8

    def blocks(self, context: int) -> int:
        """Blocks of ``context`` targets that each document gives to each bucket."""
        return max(1, self.targets_per_bucket // (4 if self.quick else 1) // context)


@dataclass(frozen=True, kw_only=True)
class MeasuresConfig:
    """Settings of the measures that say why a model breaks."""

    remembrance_ends: tuple[int, ...] = ()
    """T of effective remembrance: after how many tokens, less one. Default: four training lengths, and max_length."""
    remembrance_starts: int = 32
    """Starts of suffixes for each T, spaced logarithmically."""
    memory_gib: Annotated[float, tyro.conf.arg(name="memory")] = 2.0
    """Bound on the states of the rows that are read side by side, in GiB."""
    positions_per_octave: int = 2
    """How densely states are looked at; positions are spaced logarithmically."""
    worst_heads: int = 6
    """How many of the heads that leave their in-range law farthest are named."""
    projections: int = 64
    """Random directions on which laws of the state are compared."""
    permutations: int = 500
    """Labelings of the null of the state distance."""
    writes: int = 4
    """Writes whose decay is followed, in every document."""
    break_growth: float = 2.0
    """Where the second moment of a layer's state reaches so many times that at T, a break is predicted."""
    transplant_positions: int = 3
    """Positions at which states are exchanged, spaced logarithmically."""
    memory_targets: int = 128
    """Targets that each document gives to the measure of used memory."""

    def __post_init__(self) -> None:
        counts = (
            "remembrance_starts",
            "positions_per_octave",
            "worst_heads",
            "projections",
            "permutations",
            "writes",
            "transplant_positions",
            "memory_targets",
        )
        for name in counts:
            if getattr(self, name) < 1:
                raise EverlongError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if any(end < 1 for end in self.remembrance_ends):
            raise EverlongError(f"remembrance_ends has {min(self.remembrance_ends)}; every T must be at least 1")
        if not 1 < self.break_growth < math.inf:
            raise EverlongError(f"break_growth is {self.break_growth}; it must be above 1")
        if not 0 < self.memory_gib < math.inf:
            raise EverlongError(f"--memory {self.memory_gib} must be above 0 (GiB)")
