"""What came of a diagnosis as a whole: the models' labels, the verdict in one sentence, the bound for tests."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from everlong.diagnostics.comparison import BEFORE
from everlong.diagnostics.verdict import FEWEST_DOCUMENTS
from everlong.errors import EverlongError
from everlong.interventions.methods import INTERVENTIONS
from everlong.records.diagnosis import Diagnosis, Overview
from everlong.workflows._warnings import data_warnings
from everlong.workflows.config import DiagnoseConfig


def labels_of(models: Sequence[str]) -> tuple[str, ...]:
    """A name for each model that can stand in the name of a record; no two are equal.

    The first is "before". A model that a repair has made (models/METHOD) goes by its method, and so has that method's
    look in every figure; another by the last part of its name.
    """
    labels, shown = [BEFORE], Path(models[0]).name  # in figures the first goes by its own name
    for model in models[1:]:
        label = re.sub(r"[^\w.,=-]", "_", Path(model).name).strip(".") or "model"
        if label.split(",")[0] in INTERVENTIONS and Path(model).parent.name != "models":
            label = f"{label}-model"  # a folder that happens to be called like a method
        base, number = label, 2
        while label in (*labels, shown):
            label, number = f"{base}-{number}", number + 1
        labels.append(label)
    return tuple(labels)


def overview(
    config: DiagnoseConfig,
    diagnoses: Mapping[str, Diagnosis],
    measures: Mapping[str, Mapping[str, Any]],
    left_out: Sequence[str],
) -> Overview:
    """The last record of a diagnosis.

    Raises:
        EverlongError: a bound is to be kept, and no bucket has enough documents to be judged.
    """
    seconds = {f"loss by position, {label}": diagnosis.seconds for label, diagnosis in diagnoses.items()}
    for name, of_models in measures.items():
        seconds |= {f"{name.replace('_', ' ')}, {label}": record.basis.seconds for label, record in of_models.items()}
    warnings = dict.fromkeys(warning for diagnosis in diagnoses.values() for warning in data_warnings(diagnosis))
    bound = config.fail_above
    return Overview(
        labels=tuple(diagnoses),
        measures=tuple(measures),
        sentence=_sentence(diagnoses),
        warnings=(*warnings, *_different_text(diagnoses), *left_out),
        fail_above=bound,
        exceeded=() if bound is None else tuple(_exceeded(diagnoses, bound)),
        seconds=seconds,
    )


def _sentence(diagnoses: Mapping[str, Diagnosis]) -> str:
    first, *others = diagnoses.values()
    if not others:
        return first.verdict.sentence
    verdicts = [f"{_name(diagnosis)} {_in_words(diagnosis)}" for diagnosis in diagnoses.values()]
    verdict = first.verdict
    return (
        f"{'; '.join(verdicts)} ({verdict.confidence:.0%} sure, tolerance {verdict.tolerance:g} nats, "
        f"{verdict.documents} documents)."
    )


def _in_words(diagnosis: Diagnosis) -> str:
    """Breaks at 128 tokens (excess +1.76 nats a token at 2,048-4,096)."""
    excess, verdict = diagnosis.excess, diagnosis.verdict
    judged = [i for i, documents in enumerate(excess.documents) if documents >= FEWEST_DOCUMENTS and i > 0]
    words = {"breaks": "breaks at", "holds": "holds to", "undecided": "is undecided"}[verdict.outcome]
    words = words if verdict.position is None else f"{words} {verdict.position:,} tokens"
    if not judged:
        return words
    last = judged[-1]
    return f"{words} (excess {excess.mean[last]:+.2f} nats a token at {excess.starts[last]:,}-{excess.stops[last]:,})"


def _name(diagnosis: Diagnosis) -> str:
    return diagnosis.model if diagnosis.label == BEFORE else diagnosis.label.replace("_", " ")


def _different_text(diagnoses: Mapping[str, Diagnosis]) -> list[str]:
    """Models of different training lengths or tokenizers may have read different rows: their curves are not paired."""
    first = next(iter(diagnoses.values()))
    return [
        f"{label} did not read the same rows as {first.label}: its curve and theirs are not of the same targets."
        for label, diagnosis in diagnoses.items()
        if (diagnosis.documents, diagnosis.offsets, diagnosis.data_fingerprint)
        != (first.documents, first.offsets, first.data_fingerprint)
    ]


def _exceeded(diagnoses: Mapping[str, Diagnosis], bound: float) -> list[str]:
    found, judged = [], 0
    for label, diagnosis in diagnoses.items():
        excess = diagnosis.excess
        for i in range(1, len(excess.starts)):
            if excess.documents[i] < FEWEST_DOCUMENTS:
                continue
            judged += 1
            if excess.lower[i] > bound:
                found.append(
                    f"{label} at {excess.starts[i]:,}-{excess.stops[i]:,} tokens: excess {excess.mean[i]:+.3f} nats, "
                    f"and the lower end of its {excess.confidence:.0%} interval, {excess.lower[i]:+.3f}, is above "
                    f"{bound:g}"
                )
    if not judged:
        raise EverlongError(
            f"--fail-above {bound:g} cannot be judged: no bucket beyond the training length has {FEWEST_DOCUMENTS} "
            "documents; give more or longer ones"
        )
    return found
