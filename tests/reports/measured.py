"""Records of every measure, made up: a model whose state runs away in one head, and a repaired one."""

from typing import Any

import numpy as np

from everlong.records.diagnosis import Overview
from everlong.records.measurements import (
    Basis,
    DecayHorizons,
    Distances,
    Estimate,
    MeanDrift,
    Remembrance,
    RemembranceAt,
    StateDistance,
    StateStatistics,
    Transplant,
    UsedMemory,
)
from tests.reports.synthetic import CONTEXT, DOCUMENTS, LENGTH, STARTS, STOPS, make_diagnosis

HARM = {"before": 1.0, "state_passing": 0.1}
LAYERS, HEADS = (0, 0, 1, 1, 2, 2, 3, 3), (0, 1) * 4
POSITIONS = (1, 16, 33, 64, 65, 256, 1024, 4096, LENGTH)
PARTS = ("all", "all recurrent", "all other", *(f"layers.{i}.{leaf}" for i in range(4) for leaf in ("state", "conv")))


def make_basis(label: str, model: str = "bundled") -> Basis:
    return Basis(
        label=label,
        model=model,
        architecture="mamba2",
        parameters=612_480,
        context=CONTEXT,
        length=LENGTH,
        documents=tuple(f"Lib/module_{i:02d}.py" for i in range(DOCUMENTS)),
        document_tokens=(LENGTH + 1,) * DOCUMENTS,
        offsets=(0,) * DOCUMENTS,
        data_fingerprint="sha256:5f0c19f0b7a4d1e2",
        confidence=0.95,
        tolerance=0.02,
        seed=0,
        backend="numba",
        device="cpu",
        dtype="float32",
        tokens_read=3_145_728,
        seconds=12.0,
    )


def about(mean: Any, width: float = 0.01) -> Estimate:
    mean = np.asarray(mean, dtype=float)
    return Estimate(
        mean=mean,
        lower=mean - width,
        upper=mean + width,
        documents=np.full(mean.shape, DOCUMENTS),
        interval="made up",
    )


def remembrance(label: str, basis: Basis) -> Remembrance:
    def at(end: int) -> RemembranceAt:
        starts = tuple(sorted({0, 1, 4, 16, end // 4, end // 2, *(end + 1 - 2**i for i in range(6))}))
        far = np.array(starts) / end
        values = (0.02 + 0.9 * far**3) * (1 if label == "before" else 0.3)
        values[0] = 0
        named = {"total_variation": values, "signed": (far - 0.6) * HARM[label]}
        return RemembranceAt(
            end=end,
            starts=starts,
            values={name: np.tile(v, (DOCUMENTS, 1)) for name, v in named.items()},
            estimates={name: about(v) for name, v in named.items()},
        )

    ends = (at(4 * CONTEXT - 1), at(LENGTH - 1))
    return Remembrance(basis=basis, ends=ends, memory_gib=2.0, rows_at_once=128, sweeps=3, tokens_alone=10**7)


def statistics(label: str, basis: Basis) -> StateStatistics:
    full = 0.02 * np.array(POSITIONS, dtype=float) ** (0.3 * HARM[label] + 0.05)
    by_head = full[:, None] * np.linspace(0.5, 2, len(HEADS))
    departure = np.linspace(1, -0.2, len(HEADS)) * HARM[label]
    return StateStatistics(
        basis=basis,
        positions=POSITIONS,
        layers=LAYERS,
        heads=HEADS,
        by_head={name: about(by_head) for name in ("mean", "std", "rms", "largest", "effective_rank")},
        full={name: about(full) for name in ("mean", "std", "rms", "largest")},
        mean_matrix_rms=by_head,
        spread_rms=by_head,
        mean_share=about(np.linspace(0.3, 0.9, len(POSITIONS))),
        departure=about(departure),
        departure_at=(LENGTH,) * len(HEADS),
        worst=(0, 1, 2, 3, 4, 5),
    )


def distance(label: str, basis: Basis) -> StateDistance:
    rise = np.maximum(np.log2(np.array(POSITIONS) / 16), 0.1) * HARM[label] * np.array([[1.0], [2.0], [0.5], [np.nan]])
    laws = Distances(
        energy=rise,
        null_mean=rise * 0.1,
        null_upper=rise * 0.2,
        p_value=np.full(rise.shape, 0.01),
        drift=np.array([1.0, 1.0, 1.0, np.nan]),
        in_drifts=about(rise),
    )
    beyond = tuple(position for position in POSITIONS if position > CONTEXT)
    return StateDistance(
        basis=basis,
        positions=POSITIONS,
        layers=(0, 1, 2, 3),
        state=laws,
        read_out=laws,
        projections=64,
        permutations=500,
        excess=about(np.linspace(0, HARM[label], len(beyond))),
        excess_positions=beyond,
        rank_correlation={name: np.array([0.9, 0.8, 0.7, np.nan]) for name in ("state", "read_out")},
        rank_correlation_all={"state": 0.85, "read_out": float("nan")},
    )


def transplant(label: str, basis: Basis) -> Transplant:
    positions, parts = (128, 1024, LENGTH - 32), len(PARTS)
    excess = np.array([0.1, 0.5, 1.0]) * HARM[label]
    taken = excess[:, None] * np.linspace(1, 0.1, parts)
    table = np.tile(taken, (DOCUMENTS, 1, 1))
    return Transplant(
        basis=basis,
        positions=positions,
        targets=CONTEXT // 2,
        parts=PARTS,
        carried=np.tile(1.5 + excess, (DOCUMENTS, 1)),
        fresh=np.full((DOCUMENTS, 3), 1.5),
        mended=1.5 + table,
        spoiled=1.5 + table,
        excess=about(excess),
        taken=about(taken),
        brought=about(taken),
        share_taken=about(np.linspace(1, 0.1, parts)),
        share_brought=about(np.linspace(1, 0.1, parts)),
        ranked=tuple(range(3, parts)),
        head_layers=(1, 1, 2),
        heads_mended=1.5 + np.tile(excess[:, None] * np.array([0.2, 0.9]), (DOCUMENTS, 1, 1)),
        heads_taken=about(excess[:, None] * np.array([0.8, 0.1])),
    )


def drift(label: str, basis: Basis) -> MeanDrift:
    carried = np.array(make_diagnosis(label).excess.mean)
    return MeanDrift(
        basis=basis,
        starts=STARTS,
        stops=STOPS,
        carried=about(carried),
        recentred=about(carried * 0.1),
        share_taken=about(np.full(len(STARTS), 0.9)),
        calibration_documents=DOCUMENTS // 2,
    )


def decays(label: str, basis: Basis) -> DecayHorizons:
    slowest = np.array([2.0, 5, 9, 30, 70, 300, 2000, np.inf])
    at = (64, 128, 512, 4096, LENGTH)
    growth = np.stack([np.array(at) ** (0.1 * HARM[label]) / 64 ** (0.1 * HARM[label])] * 4)
    return DecayHorizons(
        basis=basis,
        layers=LAYERS,
        heads=HEADS,
        thresholds=("1/e", "1 %"),
        written_at=(32, 64),
        median=np.stack([slowest, slowest * 4]),
        slowest=np.stack([slowest, slowest * 4]),
        log_decay_context=about(-CONTEXT / slowest),
        log_decay_length=about(-LENGTH / slowest),
        slowest_log_decay_context=-CONTEXT / slowest,
        outliving=(4, 5, 6, 7),
        growth_positions=at,
        growth=growth,
        predicted_break=512 if label == "before" else None,
        growth_bound=2.0,
    )


def memory(label: str, basis: Basis) -> UsedMemory:
    widths = (1, 4, 16, 64, 256)
    over = np.array([2.0, 1.0, 0.3, 0.01, -0.3 * HARM[label]])
    return UsedMemory(
        basis=basis,
        widths=widths,
        window_share=8,
        targets=np.full(DOCUMENTS, 128),
        window_losses=np.tile(1.5 + over, (DOCUMENTS, 1)),
        full_losses=np.full(DOCUMENTS, 1.5),
        over_full=about(over),
        used=64,
        best_width=256,
        used_of_best=64,
        headroom=about([0.03]),
        sentence="The model uses 64 tokens.",
    )


MAKERS = {
    "decay_horizons": decays,
    "effective_remembrance": remembrance,
    "mean_drift": drift,
    "state_distance": distance,
    "state_statistics": statistics,
    "transplant": transplant,
    "used_memory": memory,
}


def make_measures(label: str, model: str = "bundled") -> dict[str, Any]:
    """Every measure of one model."""
    return {name: make(label, make_basis(label, model)) for name, make in MAKERS.items()}


def make_overview(sentence: str = "bundled breaks at 512 tokens; state passing is undecided.") -> Overview:
    return Overview(
        labels=("before", "state_passing"),
        measures=tuple(MAKERS),
        sentence=sentence,
        warnings=(),
        fail_above=0.1,
        exceeded=("before at 4,096-8,192 tokens: excess +0.900 nats",),
        seconds={"loss by position, before": 3.0, "transplant, before": 2.0},
    )
