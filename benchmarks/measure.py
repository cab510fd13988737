"""How things are timed: in turns, in one process, over repeats; a ratio is taken within each turn.

A machine that is slow for a second is then slow for both, and the median over turns forgets the turns in which it was
slow for one alone.
"""

import gc
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SHORTEST = 0.05  # seconds that a timed sample lasts at least: shorter work is done several times

Work = Callable[[], float | None]
"""Does the work once; returns its own seconds where it knows them better than the caller (another process's)."""


class NotAvailable(Exception):
    """Why a row cannot be measured here: a peer that is missing, a setting that is not there yet."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A figure over repeats.

    Attributes:
        values: one a repeat.
    """

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.values or not all(math.isfinite(value) for value in self.values):
            raise ValueError(f"no figure can be made of {self.values}")

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The smallest."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest."""
        return max(self.values)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What a row found.

    Attributes:
        figure: what stands in the table.
        seconds: name -> seconds of each repeat, of what was timed.
        note: what a reader must know beside the figure.
        of_fastest: the ratio of the fastest repeats; None: the figure is no ratio.
    """

    figure: Spread
    seconds: Mapping[str, tuple[float, ...]]
    note: str = ""
    of_fastest: float | None = None


def in_turns(works: Mapping[str, Work], repeats: int) -> dict[str, tuple[float, ...]]:
    """Seconds of each work in each of the repeats, in every second one in the reverse order.

    A first call of each, which may compile, is kept out; a second says how often short work is done in a sample.
    """
    times: dict[str, int] = {}
    for name, work in works.items():
        _timed(work, 1)
        times[name] = max(1, math.ceil(SHORTEST / max(_timed(work, 1), 1e-9)))
    found: dict[str, list[float]] = {name: [] for name in works}
    for repeat in range(repeats):
        names = list(works) if repeat % 2 == 0 else list(works)[::-1]
        for name in names:
            found[name].append(_timed(works[name], times[name]))
    return {name: tuple(seconds) for name, seconds in found.items()}


def compare(works: Mapping[str, Work], repeats: int, *, over: str, under: str, note: str = "") -> Measurement:
    """Times works in turns; the figure is seconds of ``over`` by seconds of ``under``."""
    seconds = in_turns(works, repeats)
    return measurement(seconds, over=over, under=under, note=note)


def measurement(seconds: Mapping[str, tuple[float, ...]], *, over: str, under: str, note: str = "") -> Measurement:
    """Of seconds that were taken in turns; the figure is those of ``over`` by those of ``under``, turn by turn.

    The ratio of the fastest turns stands beside the median: on a machine that others use it is the quieter of the two.
    """
    figure = Spread(values=tuple(a / b for a, b in zip(seconds[over], seconds[under], strict=True)))
    fastest = min(seconds[over]) / min(seconds[under])
    return Measurement(figure=figure, seconds=seconds, note=note, of_fastest=fastest)


def _timed(work: Work, times: int) -> float:
    """Mean seconds of a call."""
    gc.collect()
    own: list[float] = []
    start = time.perf_counter()
    for _ in range(times):
        seconds = work()
        if seconds is not None:
            own.append(seconds)
    return (sum(own) if own else time.perf_counter() - start) / times
