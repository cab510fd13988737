"""Effective remembrance (Buitrago Ruiz & Gu 2025, arXiv 2507.02782, Eqs. 2 and 3), with its sign beside it.

EffRem_T(t) = d(q(.|x_0 .. x_T), q(.|x_t .. x_T)), both from the zero state: how much what is predicted after T + 1
tokens depends on the first t of them. It is sensitivity, not quality: a model that its far past disturbs remembers it
well. Signed remembrance, the nats that the suffix loses to the whole on the true next token, says which.
"""

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from everlong.diagnostics._estimates import estimate
from everlong.diagnostics._examination import Examination, rows_within
from everlong.diagnostics.config import MeasuresConfig
from everlong.errors import EverlongError
from everlong.measurements import Remembrance, RemembranceAt
from everlong.policies._plan import Read
from everlong.reading import sweep

DISTANCES = ("total_variation", "jensen_shannon_distance", "jensen_shannon_divergence", "one_minus_cosine")
MOST_ROWS = 128  # side by side: more would cut the pieces so short that their states cost more than their tokens


def effective_remembrance(examination: Examination, config: MeasuresConfig) -> Remembrance:
    """Measures it at every T of ``config.remembrance_ends`` in one sweep; see the module.

    Suffix rows join the batch as the sweep reaches their starts, so a start that several T share is read once: the
    more T, the more is saved. At a single T every suffix has tokens and a state of its own, and nothing is.

    Raises:
        EverlongError: a T that no document reaches.
    """
    ends = config.remembrance_ends or default_ends(examination.context, examination.length)
    starts = start_grids(ends, config.remembrance_starts)
    rows = examination.panel.rows
    values = {end: np.full((len(DISTANCES) + 1, len(rows), len(grid)), np.nan) for end, grid in starts.items()}
    reaching = {end: [document for document, row in enumerate(rows) if len(row) > end + 1] for end in starts}
    for end, documents in reaching.items():
        if not documents:
            raise EverlongError(f"no document has the {end + 2:,} tokens that T = {end:,} needs: choose a smaller T")
    at_once = min(rows_within(examination.model, config.memory_gib), MOST_ROWS)
    sweeps = list(_sweeps(starts, reaching, at_once))
    total = sum(read.length for reads in sweeps for _, read in reads)
    with examination.work("effective remembrance", total) as work:
        for reads in sweeps:
            for moment in sweep(examination.model, rows, reads, [end + 1 for end in starts], advance=work.advance):
                end = moment.position - 1
                _note(values[end], starts[end], rows, reads, moment.reads, moment.logits, end)
    return Remembrance(
        basis=examination.basis(work),
        ends=tuple(_at(end, starts[end], values[end], examination) for end in starts),
        memory_gib=config.memory_gib,
        rows_at_once=at_once,
        sweeps=len(sweeps),
        tokens_alone=sum((end + 1 - start) * len(reaching[end]) for end, grid in starts.items() for start in grid),
    )


def default_ends(context: int, length: int) -> tuple[int, ...]:
    """T after four training lengths, as in the paper (8,192 of 2,048), and at the end of the length."""
    return tuple(sorted({min(4 * context, length) - 1, length - 1}))


def start_grids(ends: Iterable[int], count: int) -> dict[int, tuple[int, ...]]:
    """For each T, ascending: 0 and up to ``count`` - 1 further starts up to T, spaced logarithmically from both ends.

    So both the first tokens dropped and the last tokens kept are seen finely. What is dropped is spaced alike for all
    T, as far as half of each, for these suffixes are long and the T can share them.
    """
    ends = sorted(set(ends))
    dropped = _spaced(max(1, (ends[-1] + 1) // 2), count // 2)
    grids = {}
    for end in ends:
        middle = max(1, (end + 1) // 2)
        shared = {0, *(tokens for tokens in dropped if tokens <= middle)}
        kept = _spaced(middle, count - len(shared))
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


def _sweeps(
    starts: dict[int, tuple[int, ...]], reaching: dict[int, list[int]], at_once: int
) -> Iterator[list[tuple[int, Read]]]:
    """Reads, parted into sweeps of at most ``at_once`` rows; every sweep holds the whole of each of its documents."""
    reads: list[tuple[int, Read]] = []
    for document in sorted({document for documents in reaching.values() for document in documents}):
        ends = [end for end in starts if document in reaching[end]]
        last = {start: max(end for end in ends if start in starts[end]) for end in ends for start in starts[end]}
        suffixes = [Read(start, end + 1, end + 1) for start, end in sorted(last.items()) if start]
        whole = Read(0, max(ends) + 1, max(ends) + 1)
        for first in range(0, len(suffixes), at_once - 1):
            part = [whole, *suffixes[first : first + at_once - 1]]
            if len(reads) + len(part) > at_once:
                yield reads
                reads = []
            reads = reads + [(document, read) for read in part]
    yield reads


def _note(
    values: np.ndarray,
    grid: tuple[int, ...],
    rows: tuple[np.ndarray, ...],
    reads: list[tuple[int, Read]],
    present: tuple[int, ...],
    logits: Tensor,
    end: int,
) -> None:
    """Writes one moment's distances down, document by document."""
    by_document: dict[int, list[tuple[int, int]]] = {}
    for row, index in enumerate(present):
        document, read = reads[index]
        by_document.setdefault(document, []).append((read.start, row))
    for document, of_document in by_document.items():
        if len(rows[document]) <= end + 1:
            continue
        kept = [(start, row) for start, row in sorted(of_document) if start in grid]
        logs = logits[[row for _, row in kept]].double().log_softmax(-1)  # the first is the whole
        found = distances(logs[0].exp(), logs.exp())
        nats = -logs[:, int(rows[document][end + 1])]
        columns = [grid.index(start) for start, _ in kept]
        values[:, document, columns] = torch.cat([found, (nats - nats[0]).unsqueeze(0)]).cpu().numpy()


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
