"""The benchmark's flags, free of torch."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Measure Everlong against its peers and floors: ratios from work done in turns, medians over repeats."""

    only: tuple[str, ...] = ()
    """Rows to run, by name or pattern ("train-*"); none: all."""
    repeats: int = 5
    """Turns of each comparison."""
    threads: int | None = None
    """Threads of everything. Default: one a processor."""
    output: Path | None = None
    """JSON file for the figures. Default: runs/benchmarks/TIME.json."""
    full: bool = False
    """Train the bundled model's recipe to its end instead of projecting from its first steps."""

    def __post_init__(self) -> None:
        for name in ("repeats", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"--{name} is {value}; it must be at least 1")
