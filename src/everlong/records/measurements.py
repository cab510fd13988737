"""Typed records of the measures (``everlong.diagnostics.measures``).

Positions count tokens: after n tokens the state is D_{n-1}, the state after x_{n-1}, and the next target is x_n. A head
is what the first axis of a recurrent leaf counts: of Mamba-1, whose channels are recurrences of their own, a channel.
"""

from dataclasses import dataclass

import numpy as np

from everlong.records._measured import Measured
from everlong.records._record import Record


@dataclass(frozen=True, kw_only=True)
class Basis(Measured):
    """What a measurement rests on, and how sure it is to be."""

    confidence: float
    """Of the intervals."""
    tolerance: float
    """Excess in nats that does not count as harm."""


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
    """Passes: one over the documents and one over the short suffixes, and more where the bound makes them necessary."""
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


@dataclass(frozen=True, kw_only=True)
class Distances(Record):
    """How far one thing's law at each position is from its law at the end of the training range, layer by layer."""

    energy: np.ndarray
    """[layers, positions], energy distance 2 E|X - Y| - E|X - X'| - E|Y - Y'|, averaged over the projections."""
    null_mean: np.ndarray
    """[layers, positions], its mean where the labels of position are permuted within documents."""
    null_upper: np.ndarray
    """[layers, positions], the null's quantile at the confidence."""
    p_value: np.ndarray
    """[layers, positions], share of permutations at least as far, the true one counted."""
    drift: np.ndarray
    """[layers], the energy from D_{T/2} to D_{T-1} less its null's mean: the in-range drift; not-a-number where it is
    within its null, and so no unit."""
    in_drifts: Estimate
    """[layers, positions], energy less its null's mean, in units of the in-range drift; jackknife over documents."""


@dataclass(frozen=True, kw_only=True)
class StateDistance(Record):
    """How far the law of the state at a position is from its law within the training range, beyond two moments."""

    basis: Basis
    positions: tuple[int, ...]
    """Tokens read; after n of them the law is D_{n-1}. It is compared with D_{T-1}."""
    layers: tuple[int, ...]
    state: Distances
    read_out: Distances
    """Of what the recurrence gives out there, C_t S_t (RWKV-6's bonus included)."""
    projections: int
    """Random directions, those of a layer drawn from the seed and the layer's number."""
    permutations: int
    excess: Estimate
    """[positions beyond the training length], nats that the carried state costs over the next T/2 targets against the
    state of a fresh window of T tokens at that position."""
    excess_positions: tuple[int, ...]
    rank_correlation: dict[str, np.ndarray]
    """state, read_out -> [layers], Spearman's over the excess positions, of distance in drifts with the mean excess."""
    rank_correlation_all: dict[str, float]
    """The same over positions and those layers at once whose drift is a unit."""


@dataclass(frozen=True, kw_only=True)
class DecayHorizons(Record):
    """For how long a write is remembered, from the decays that the model really applies on text."""

    basis: Basis
    layers: tuple[int, ...]
    """Of each head, in the order of the arrays' columns."""
    heads: tuple[int, ...]
    thresholds: tuple[str, ...]
    """What a write has fallen to: the rows of the horizons."""
    written_at: tuple[int, ...]
    """Positions of the writes that were followed, in every document."""
    median: np.ndarray
    """[thresholds, heads], tokens, the median over documents, writes and the decays of a head; infinite where the text
    ended before."""
    slowest: np.ndarray
    """[thresholds, heads], the same for the head's slowest decay."""
    log_decay_context: Estimate
    """[heads], sum of log-decays over the first T tokens, averaged over the decays of a head."""
    log_decay_length: Estimate
    """[heads], the same over the whole length."""
    slowest_log_decay_context: np.ndarray
    """[heads], the sum over the first T tokens for the head's slowest decay, mean over documents."""
    outliving: tuple[int, ...]
    """Columns of the heads in which some write outlives the training context: slowest 1/e above T."""
    growth_positions: tuple[int, ...]
    growth: np.ndarray
    """[layers, growth positions], the state's second moment over that at T, extrapolated from the mean matrix and the
    spread at T and the decays within T alone."""
    predicted_break: int | None
    """Where some layer's second moment is first predicted to be ``growth_bound`` times that at T; None: nowhere."""
    growth_bound: float


@dataclass(frozen=True, kw_only=True)
class Transplant(Record):
    """Which part of the state does the harm: losses after parts were exchanged between a long and a fresh read.

    At each position the carried state of a document meets the state of a fresh window of T tokens of the same document.
    """

    basis: Basis
    positions: tuple[int, ...]
    """Tokens read where states are exchanged."""
    targets: int
    """After each, over which losses are means: T/2."""
    parts: tuple[str, ...]
    """What is exchanged: all, all recurrent, all other (convolution and shift), then every leaf."""
    carried: np.ndarray
    """[documents, positions], nats after the carried state."""
    fresh: np.ndarray
    """[documents, positions], nats after the fresh window's state."""
    mended: np.ndarray
    """[documents, positions, parts], nats after the carried state with this part fresh."""
    spoiled: np.ndarray
    """[documents, positions, parts], nats after the fresh state with this part carried."""
    excess: Estimate
    """[positions], carried less fresh."""
    taken: Estimate
    """[positions, parts], nats that the exchange takes away: carried less mended."""
    brought: Estimate
    """[positions, parts], nats that the reverse brings in: spoiled less fresh."""
    share_taken: Estimate
    """[parts], of the excess over all positions; jackknife. Single parts do not add up. Read only beside the excess."""
    share_brought: Estimate
    """[parts], the same of the reverse."""
    ranked: tuple[int, ...]
    """Single leaves among the parts, the one that takes most away first."""
    head_layers: tuple[int, ...]
    """At each position, the layer whose recurrent leaf takes most away; empty where heads are too many to exchange."""
    heads_mended: np.ndarray
    """[documents, positions, heads], nats after the carried state with this head of that layer fresh."""
    heads_taken: Estimate
    """[positions, heads], carried less that."""


@dataclass(frozen=True, kw_only=True)
class UsedMemory(Record):
    """How much context the model really uses: the shortest that is as good as the full one."""

    basis: Basis
    widths: tuple[int, ...]
    """Windows, ascending; their last width / window_share targets are scored (at the least one)."""
    window_share: int
    targets: np.ndarray
    """[documents], targets scored, all in the second half of the length."""
    window_losses: np.ndarray
    """[documents, widths], mean nats."""
    full_losses: np.ndarray
    """[documents], mean nats of the same targets with the whole document carried."""
    over_full: Estimate
    """[widths], window less full."""
    used: int | None
    """The shortest window that is surely within the tolerance of the full context; None: no window is, or the full
    context surely harms, so that any window would do."""
    best_width: int
    """The window with the least loss."""
    used_of_best: int
    """The shortest window whose mean is within the tolerance of the best window's."""
    headroom: Estimate
    """[1], nats that the best longer context, the full one included, gains over the window of the training length."""
    sentence: str


@dataclass(frozen=True, kw_only=True)
class MeanDrift(Record):
    """Whether the drift of the document-independent mean state carries the harm: the policy recentre, a test of causes.

    What is subtracted in one half of the documents was estimated on the other half.
    """

    basis: Basis
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    carried: Estimate
    """[buckets], excess in nats over the own window of the training length, state carried."""
    recentred: Estimate
    """[buckets], the same with the mean's drift taken away every T tokens."""
    share_taken: Estimate
    """[buckets], of the carried state's excess; jackknife. Read only where that excess is surely above zero."""
    calibration_documents: int
