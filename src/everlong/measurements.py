"""Typed records of the measures (``everlong.diagnostics.measures``); ``everlong.records`` writes and reads them.

Positions count tokens: after n tokens the state is D_{n-1}, the state after x_{n-1}, and the next target is x_n. A head
is what the first axis of a recurrent leaf counts: of Mamba-1, whose channels are recurrences of their own, a channel.
"""

from dataclasses import dataclass

import numpy as np

from everlong._record import Record


@dataclass(frozen=True, kw_only=True)
class Basis(Record):
    """What a measurement rests on: the model, the text, the seed, the machine."""

    label: str
    """before, or the method that made the model."""
    model: str
    architecture: str
    parameters: int
    context: int
    """The training length in tokens."""
    length: int
    """How far was read, in tokens."""
    documents: tuple[str, ...]
    """The held-out documents, in the order of the arrays' rows: the units of all intervals."""
    document_tokens: tuple[int, ...]
    """Tokens of each that could be read, the last one's target included."""
    offsets: tuple[int, ...]
    """Where in its document each row starts, in a state of zero; no begin, end or reset tokens are added."""
    data_fingerprint: str
    confidence: float
    """Of the intervals."""
    tolerance: float
    """Excess in nats that does not count as harm."""
    seed: int
    backend: str
    device: str
    dtype: str
    tokens_read: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Estimate(Record):
    """Means over documents with their intervals; arrays of one shape, not-a-number where too few documents reach."""

    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    documents: np.ndarray
    """Documents that each mean is over."""
    interval: str
    """How the intervals were made."""


@dataclass(frozen=True, kw_only=True)
class RemembranceAt(Record):
    """Effective remembrance at one T: x_0 .. x_T against x_t .. x_T, what each predicts of the next token."""

    end: int
    """T."""
    starts: tuple[int, ...]
    """t, ascending from 0; the suffix has T + 1 - t tokens."""
    values: dict[str, np.ndarray]
    """total_variation, jensen_shannon_distance (square root, base 2), jensen_shannon_divergence (base 2),
    one_minus_cosine, signed (nats of the suffix minus nats of the whole on the true next token: above zero the prefix
    helps) -> [documents, starts]; not-a-number for a document that is too short."""
    estimates: dict[str, Estimate]
    """The same -> means over documents, with intervals simultaneous over the starts."""


@dataclass(frozen=True, kw_only=True)
class Remembrance(Record):
    """Effective remembrance (Buitrago Ruiz & Gu 2025, Eqs. 2 and 3). It is sensitivity, not quality."""

    basis: Basis
    ends: tuple[RemembranceAt, ...]
    memory_gib: float
    """Bound on the states of the rows that are read side by side."""
    rows_at_once: int
    sweeps: int
    """Passes over the documents that the bound made necessary."""
    tokens_alone: int
    """Tokens that running every suffix and every whole alone would read; ``basis.tokens_read`` were read."""


@dataclass(frozen=True, kw_only=True)
class StateStatistics(Record):
    """The recurrent state against position, by head and as a whole, and split into mean matrix and spread."""

    basis: Basis
    positions: tuple[int, ...]
    """Tokens read."""
    layers: tuple[int, ...]
    """Of each head, in the order of the arrays' columns."""
    heads: tuple[int, ...]
    """Of each head, within its layer."""
    by_head: dict[str, Estimate]
    """mean, std, rms, largest (magnitude), effective_rank (exp of the entropy of the normalised singular values, Roy &
    Vetterli 2007; 1 where heads are vectors) of a head's elements -> [positions, heads], intervals each alone."""
    full: dict[str, Estimate]
    """mean, std (Fig. 4), rms, largest over all elements of all layers -> [positions], simultaneous intervals."""
    mean_matrix_rms: np.ndarray
    """[positions, heads], root mean square of the mean over documents, its noise taken off."""
    spread_rms: np.ndarray
    """[positions, heads], root mean square of the documents' deviations from that mean."""
    mean_share: Estimate
    """Share of the full state's second moment that the document-independent mean holds -> [positions], jackknife."""
    departure: Estimate
    """By how much, in natural logarithms of the std, each head leaves the band that it keeps to within (T/2, T], at the
    position beyond T where it does so most -> [heads]; zero or below: it stays inside."""
    departure_at: tuple[int, ...]
    """Those positions."""
    worst: tuple[int, ...]
    """Columns of the heads that leave it farthest, the farthest first."""
