"""Effective remembrance (Buitrago Ruiz & Gu 2025, arXiv 2507.02782, Eqs. 2 and 3), with its sign beside it.

EffRem_T(t) = d(q(.|x_0 .. x_T), q(.|x_t .. x_T)), both from the zero state: how much what is predicted after T + 1
tokens depends on the first t of them. It is sensitivity, not quality: a model that its far past disturbs remembers it
well. Signed remembrance, the nats that the suffix loses to the whole on the true next token, says which.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from everlong.diagnostics._estimates import estimate
from everlong.diagnostics._examination import Examination, rows_within
from everlong.diagnostics.config import MeasuresConfig
from everlong.errors import EverlongError
from everlong.policies._plan import Read
from everlong.reading import sweep
from everlong.records.measurements import Remembrance, RemembranceAt

Part = TypeVar("Part")
DISTANCES = ("total_variation", "jensen_shannon_distance", "jensen_shannon_divergence", "one_minus_cosine")
MOST_ROWS = 128  # side by side: more would cut the pieces so short that their states cost more than their tokens


def effective_remembrance(examination: Examination, config: MeasuresConfig) -> Remembrance:
    """Measures it at every T of ``config.remembrance_ends``; see the module.

    The wholes and the long suffixes are read in one sweep over the documents, which suffix rows join as it reaches
    their starts: a start that several T share is read once, and the more T, the more is saved. At a single T every
    suffix has tokens and a state of its own, and nothing is. Short suffixes are read beside each other from their
    starts: they would cut the sweep into pieces of a token or two, whose states cost more than their tokens.

    Raises:
        EverlongError: a T that no document reaches.
    """
    ends = config.remembrance_ends or default_ends(examination.context, examination.length)
    starts = start_grids(ends, config.remembrance_starts)
    rows = examination.panel.rows
    reaching = {end: [document for document, row in enumerate(rows) if len(row) > end + 1] for end in starts}
    for end, documents in reaching.items():
        if not documents:
            raise EverlongError(f"no document has the {end + 2:,} tokens that T = {end:,} needs: choose a smaller T")
    at_once = min(rows_within(examination.model, config.memory_gib), MOST_ROWS)
    long = list(_parted(_long_reads(starts, reaching), at_once))
    short = list(_parted(_short_suffixes(starts, reaching), at_once))
    total = sum(read.length for part in long for _, read in part)
    total += sum(end + 1 - start for part in short for _, start, end in part)
    table = _Table(rows, starts)
    with examination.work("effective remembrance", total) as work:
        for reads in long:
            for moment in sweep(examination.model, rows, reads, [end + 1 for end in starts], advance=work.advance):
                end, there = moment.position - 1, [reads[index] for index in moment.reads]
                table.note(end, [(document, read.start) for document, read in there], moment.logits)
        for part in short:
            suffixes = [rows[document][start : end + 1] for document, start, end in part]
            reads = [(index, Read(0, len(suffix), len(suffix))) for index, suffix in enumerate(suffixes)]
            lengths = {len(suffix) for suffix in suffixes}
            for moment in sweep(examination.model, suffixes, reads, lengths, advance=work.advance):
                for row, index in enumerate(moment.reads):
                    document, start, end = part[index]
                    if end + 1 - start == moment.position:
                        table.note(end, [(document, start)], moment.logits[row : row + 1])
    return Remembrance(
        basis=examination.basis(work),
        ends=tuple(_at(end, starts[end], table.values[end], examination) for end in starts),
        memory_gib=config.memory_gib,
        rows_at_once=at_once,
        sweeps=len(long) + len(short),
        tokens_alone=sum((end + 1 - start) * len(reaching[end]) for end, grid in starts.items() for start in grid),
    )


def default_ends(context: int, length: int) -> tuple[int, ...]:
    """T after four training lengths, as in the paper (8,192 of 2,048), and at the end of the length."""
    return tuple(sorted({min(4 * context, length) - 1, length - 1}))


def start_grids(ends: Iterable[int], count: int) -> dict[int, tuple[int, ...]]:
    """For each T, ascending: 0 and up to ``count`` - 1 further starts up to T, spaced logarithmically from both ends.

    So both the first tokens dropped and the last tokens kept are seen finely. What is dropped is spaced alike for all
    T, as far as half of each, for these suffixes are long and the T can share them; what is kept is of the same
    lengths, four an octave, so that suffixes of several T and documents begin and end together.
    """
    ends = sorted(set(ends))
    dropped = _spaced(max(1, (ends[-1] + 1) // 2), count // 2)
    grids = {}
    for end in ends:
        middle = max(1, (end + 1) // 2)
        shared = {0, *(tokens for tokens in dropped if tokens <= middle)}
        octaves = np.log2(_spaced(middle, count - len(shared)))
        kept = {min(middle, round(2 ** (round(4 * octave) / 4))) for octave in octaves}
        grids[end] = tuple(sorted((shared | {end + 1 - tokens for tokens in kept}) & set(range(end + 1))))
    return grids


def _spaced(last: int, parts: int) -> list[int]:
    return np.geomspace(1, last, parts).round().astype(int).tolist() if parts else []


def distances(p: Float[Tensor, "S"], q: Float[Tensor, "N S"]) -> Float[Tensor, "D N"]:
    """The ``DISTANCES`` of each of q from p, probabilities in float64; of equal ones exactly zero."""
    middle = (p + q) / 2
    divergence = (_relative(p.expand_as(q), middle) + _relative(q, middle)).clamp(min=0) / 2
    unit = (m / m.norm(dim=-1, keepdim=True) for m in (p, q))
    cosine = (next(unit) - next(unit)).square().sum(-1) / 2  # 1 - cos, without its cancellation
    return torch.stack([(p - q).abs().sum(-1) / 2, divergence.sqrt(), divergence, cosine])


def _relative(p: Tensor, q: Tensor) -> Tensor:
    """Sum of p log2(p / q)."""
    return torch.where(p > 0, p * (p / q).log2(), 0.0).sum(-1)


def _is_short(start: int, end: int) -> bool:
    """Whether a suffix has less than half of the tokens."""
    return start > (end + 1) // 2


def _long_reads(starts: dict[int, tuple[int, ...]], reaching: dict[int, list[int]]) -> Iterator[tuple[int, Read]]:
    """Document by document the whole, then the suffixes that are not short, each as far as any T needs it."""
    for document in sorted({document for documents in reaching.values() for document in documents}):
        ends = [end for end in starts if document in reaching[end]]
        last = {start: end for end in ends for start in starts[end] if not _is_short(start, end)}
        for start, end in sorted(last.items()):
            stop = (end if start else max(ends)) + 1
            yield document, Read(start, stop, stop)


def _short_suffixes(
    starts: dict[int, tuple[int, ...]], reaching: dict[int, list[int]]
) -> Iterator[tuple[int, int, int]]:
    """Document, start and T, the longest first: those read beside each other are of like length."""
    found = [
        (document, start, end)
        for end, grid in starts.items()
        for start in grid
        if _is_short(start, end)
        for document in reaching[end]
    ]
    yield from sorted(found, key=lambda suffix: suffix[1] - suffix[2])


def _parted(parts: Iterable[Part], at_once: int) -> Iterator[list[Part]]:
    """Lists of at most ``at_once``."""
    parts = list(parts)
    for first in range(0, len(parts), at_once):
        yield parts[first : first + at_once]


class _Table:
    """What the suffixes' predictions are from those of the wholes, which come first."""

    def __init__(self, rows: tuple[np.ndarray, ...], starts: dict[int, tuple[int, ...]]):
        self._rows, self._starts = rows, starts
        self._wholes: dict[tuple[int, int], Tensor] = {}
        self.values = {end: np.full((len(DISTANCES) + 1, len(rows), len(grid)), np.nan) for end, grid in starts.items()}

    def note(self, end: int, reads: list[tuple[int, int]], logits: Float[Tensor, "N S"]) -> None:
        """Writes the distances at T of reads, (document, start) of each row of the logits, down."""
        grid = self._starts[end]
        by_document: dict[int, list[tuple[int, int]]] = {}
        for row, (document, start) in enumerate(reads):
            if start in grid and len(self._rows[document]) > end + 1:
                by_document.setdefault(document, []).append((start, row))
        for document, kept in by_document.items():
            kept.sort()
            logs = logits[[row for _, row in kept]].double().log_softmax(-1)
            if kept[0][0] == 0:
                self._wholes[document, end] = logs[0]
            whole = self._wholes[document, end]
            nats, target = -logs, int(self._rows[document][end + 1])
            found = torch.cat([distances(whole.exp(), logs.exp()), (nats + whole)[:, target].unsqueeze(0)])
            self.values[end][:, document, [grid.index(start) for start, _ in kept]] = found.cpu().numpy()


def _at(end: int, grid: tuple[int, ...], values: np.ndarray, examination: Examination) -> RemembranceAt:
    named: dict[str, np.ndarray] = dict(zip((*DISTANCES, "signed"), values, strict=True))
    return RemembranceAt(
        end=end,
        starts=grid,
        values=named,
        estimates={
            name: estimate(table, confidence=examination.confidence, seed=examination.seed)
            for name, table in named.items()
        },
    )
