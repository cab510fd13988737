"""Records of a diagnosis: losses by document and bucket, paired excess, verdict.

Positions count the tokens read before the target; a bucket (start, stop] holds start < t <= stop. Losses are in nats.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from everlong.records._measured import Measured
from everlong.records._record import Record


@dataclass(frozen=True, kw_only=True)
class Excess(Record):
    """Paired excess loss by position bucket: the carried state's loss minus a reference's, over the same targets."""

    reference: str
    """What the carried state is compared with, in words."""
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    mean: tuple[float, ...]
    """Nats a target; not-a-number where no document reaches."""
    lower: tuple[float, ...]
    """Lower ends of simultaneous intervals; not-a-number below two documents."""
    upper: tuple[float, ...]
    documents: tuple[int, ...]
    """Documents in the bucket: the units of the intervals."""
    targets: tuple[int, ...]
    confidence: float
    interval: str
    """How the intervals were made."""


@dataclass(frozen=True, kw_only=True)
class Verdict(Record):
    """How far the model really reads, by paired excess loss, and Def. 3.2 on perplexity beside it."""

    outcome: Literal["breaks", "holds", "undecided"]
    position: int | None
    """Breaks at, or holds to, this many tokens."""
    uses_to: int | None
    """The last position whose bucket's whole interval lies below zero: so far the model gains by what it carries."""
    sentence: str
    """The verdict in words."""
    definition_3_2: str
    """The paper's Def. 3.2 on position-wise perplexity, in words."""
    tolerance: float
    """Excess in nats that does not count as harm."""
    confidence: float
    documents: int
    fewest_documents: int
    """A bucket with fewer is not judged."""

    @property
    def short(self) -> str:
        """The outcome in two or three words."""
        words = {"breaks": "breaks at", "holds": "holds to", "undecided": "undecided"}[self.outcome]
        return words if self.position is None else f"{words} {self.position:,}"


@dataclass(frozen=True, kw_only=True)
class Curve(Record):
    """Loss against position under one policy, for each document of a fixed panel (all as long as the length)."""

    policy: str
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    losses: np.ndarray
    """[documents, buckets], mean nats over the positions of a bucket."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Measured):
    """Everything measured on one model: losses by document and bucket under each policy, curves, verdict, settings."""

    bucket_starts: tuple[int, ...]
    bucket_stops: tuple[int, ...]
    targets: np.ndarray
    """[documents, buckets], targets scored."""
    losses: dict[str, np.ndarray]
    """Reading policy -> [documents, buckets], mean nats over the same targets; windows are named "window:WIDTH"."""
    curves: tuple[Curve, ...]
    in_range_losses: np.ndarray
    """[documents], mean nats of the training length read from the zero state, over all chunks of the document."""
    excess: Excess
    """Against the model's own window of the training length."""
    verdict: Verdict
    window_share: int
    """Of a window, the last width / window_share targets were scored."""

    @property
    def in_range_perplexity(self) -> float:
        """Exp of the mean in-range loss."""
        return float(np.exp(np.nanmean(self.in_range_losses)))

    @property
    def window_widths(self) -> tuple[int, ...]:
        """Widths of the windows measured, ascending."""
        return tuple(sorted(int(name.split(":")[1]) for name in self.losses if name.startswith("window:")))

    @property
    def judged_documents(self) -> int:
        """Documents that reach beyond the training length."""
        return int((self.targets[:, 1:].sum(axis=1) > 0).sum())


@dataclass(frozen=True, kw_only=True)
class Overview(Record):
    """A diagnosis of one model or several as a whole: what was asked, and what came of it. The last record of a run."""

    labels: tuple[str, ...]
    """Of the models, in the order in which they were given."""
    measures: tuple[str, ...]
    """Asked for, beside the diagnosis itself."""
    sentence: str
    """The verdict on all models in one sentence."""
    warnings: tuple[str, ...]
    """What a reader must know: too few documents, measures that could not be made, and why."""
    fail_above: float | None
    """Nats of paired excess; None: no bound was asked for."""
    exceeded: tuple[str, ...]
    """The buckets that surely exceed that bound, in words."""
    seconds: dict[str, float]
    """Phase -> wall-clock seconds."""
