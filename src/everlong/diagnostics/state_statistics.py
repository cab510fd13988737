"""The law of the state against position: size, rank, and how much of it no document has a say in.

The paper's Fig. 4 is the standard deviation over all elements of the full state, its Fig. 9 that of a head. Both mix
the mean matrix that all documents share with the spread around it, so the two are also given apart: M_t = E[S_t] over
documents, and E|S_t - M_t|^2. With D documents the mean's own noise, a D-th of the spread, is taken off.
"""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from everlong.diagnostics._estimates import estimate, estimate_each, jackknife
from everlong.diagnostics._examination import Examination, log_positions
from everlong.diagnostics._recurrences import matrices
from everlong.diagnostics.config import MeasuresConfig
from everlong.policies._plan import Read
from everlong.reading import sweep
from everlong.records.measurements import Estimate, StateStatistics
from everlong.state import RecurrentState

BY_HEAD = ("mean", "std", "rms", "largest", "effective_rank")
FULL = ("mean", "std", "rms", "largest")


def state_statistics(examination: Examination, config: MeasuresConfig) -> StateStatistics:
    """Looks at the states of the documents that are as long as the length; see the module."""
    rows, length = examination.full_rows, examination.length
    positions = log_positions(examination.context, length, config.positions_per_octave)
    reads = [(document, Read(0, length, length)) for document in range(len(rows))]
    by_head, full, grams, whole_grams = [], [], [], []
    with examination.work("state statistics", length * len(rows)) as work:
        for moment in sweep(examination.model, rows, reads, positions, advance=work.advance):
            heads, everything, gram, whole_gram = _look(moment.state)
            by_head.append(heads)
            full.append(everything)
            grams.append(gram)
            whole_grams.append(whole_gram)
    table = np.stack(by_head, axis=2)  # statistic, document, position, head
    whole = np.stack(full, axis=2)
    shares = jackknife(lambda kept: _mean_share(np.stack(whole_grams)[:, kept][:, :, kept]), len(rows))
    mean_squares, spreads = _split(np.stack(grams))
    departure, at = _departure(table[BY_HEAD.index("std")], positions, examination)
    columns = [
        (layer, head) for layer, leaf in matrices(examination.model.zero_state(1)) for head in range(leaf.shape[1])
    ]
    worst = np.argsort(-departure.mean, kind="stable")[: config.worst_heads]
    return StateStatistics(
        basis=examination.basis(work, full_only=True),
        positions=positions,
        layers=tuple(layer for layer, _ in columns),
        heads=tuple(head for _, head in columns),
        by_head={
            name: estimate_each(values, confidence=examination.confidence)
            for name, values in zip(BY_HEAD, table, strict=True)
        },
        full={
            name: estimate(values, confidence=examination.confidence, seed=examination.seed)
            for name, values in zip(FULL, whole, strict=True)
        },
        mean_matrix_rms=np.sqrt(mean_squares),
        spread_rms=np.sqrt(spreads),
        mean_share=estimate(shares, confidence=examination.confidence, seed=examination.seed),
        departure=departure,
        departure_at=tuple(map(int, at)),
        worst=tuple(map(int, worst)),
    )


def effective_rank(matrix: Float[Tensor, "... K V"]) -> Float[Tensor, "..."]:
    """Exp of the entropy of the normalised singular values (Roy & Vetterli 2007); a zero matrix has none, so 0."""
    finite = torch.isfinite(matrix).all(-1).all(-1)
    singular = torch.linalg.svdvals(torch.where(finite[..., None, None], matrix, 0.0))
    total = singular.sum(-1)
    shares = singular / total.unsqueeze(-1).clamp(min=torch.finfo(matrix.dtype).tiny)
    rank = torch.special.entr(shares).sum(-1).exp()
    return torch.where(finite, torch.where(total > 0, rank, 0.0), torch.nan)


def _look(state: RecurrentState) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """What is to be known of the states at one position.

    Returns:
        Statistics [BY_HEAD, B, heads] and [FULL, B]; products of the documents' states, averaged over the elements of
        each head [heads, B, B] and over all [B, B].
    """
    parts, grams = [], []
    count, total, gram = 0, torch.zeros(()), torch.zeros(())
    for _, leaf in matrices(state):
        flat = leaf.double().flatten(2)
        variance, mean = torch.var_mean(flat, dim=2, correction=0)
        square = flat.square().mean(2)
        largest = flat.abs().amax(2)
        parts.append(torch.stack([mean, variance.sqrt(), square.sqrt(), largest, effective_rank(leaf).double()]))
        products = torch.einsum("ihn,jhn->hij", flat, flat)
        grams.append(products / flat.shape[2])
        count += flat[0].numel()
        total, gram = total + flat.sum((1, 2)), gram + products.sum(0)
    heads = torch.cat(parts, dim=2)
    mean, square = total / count, gram.diagonal() / count
    std = (square - mean.square()).clamp(min=0).sqrt()
    full = torch.stack([mean, std, square.sqrt(), heads[BY_HEAD.index("largest")].amax(1)])
    return heads.cpu().numpy(), full.cpu().numpy(), torch.cat(grams).cpu().numpy(), (gram / count).cpu().numpy()


def _split(grams: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean squares of the mean matrix and of the spread, from products [..., D, D] of the documents' states."""
    documents = grams.shape[-1]
    own = np.trace(grams, axis1=-2, axis2=-1)
    mean_square = (grams.sum((-2, -1)) - own) / (documents * (documents - 1))
    return np.maximum(mean_square, 0), np.maximum(own / documents - mean_square, 0)


def _mean_share(grams: np.ndarray) -> np.ndarray:
    if grams.shape[-1] < 2:
        return np.full(len(grams), np.nan)
    mean_square, spread = _split(grams)
    total = mean_square + spread
    return np.divide(mean_square, total, out=np.zeros_like(total), where=total > 0)


def _departure(std: np.ndarray, positions: tuple[int, ...], examination: Examination) -> tuple[Estimate, np.ndarray]:
    """How far each head leaves its band; ``std`` is [documents, positions, heads]."""
    where = np.array(positions)
    logs = np.log(np.maximum(std, np.finfo(np.float32).tiny))
    mean = logs.mean(axis=0)
    inside = (where > examination.context // 2) & (where <= examination.context)
    beyond = np.flatnonzero(where > examination.context)
    high, low = mean[inside].max(axis=0), mean[inside].min(axis=0)
    above, below = mean[beyond] - high, low - mean[beyond]
    at = beyond[np.argmax(np.maximum(above, below), axis=0)]
    heads = np.arange(std.shape[2])
    there = logs[:, at, heads]
    upwards = mean[at, heads] - high >= low - mean[at, heads]
    gaps = np.where(upwards, there - high, low - there)
    return estimate_each(gaps, confidence=examination.confidence), where[at]
