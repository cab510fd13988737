"""What a run folder holds, read once: a run of any verb, finished or not."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

from everlong.records.diagnosis import Diagnosis, Overview
from everlong.records.doctor import Doctor
from everlong.records.experiment import Experiment
from everlong.records.repair import Repair
from everlong.records.tasks import TaskEvaluation
from everlong.records.training import Training
from everlong.reports._words import method_name
from everlong.runs import Run

FIRST = ("before", "zero")
"""Before repair stands first, its control next, the methods after them."""
MEASURES = (
    "effective_remembrance",
    "state_statistics",
    "state_distance",
    "transplant",
    "mean_drift",
    "decay_horizons",
    "used_memory",
)
"""In the order in which they are told; the registry is ``everlong.diagnostics.measures``, above this floor."""


@dataclass(frozen=True)
class Results:
    """The records of a run, by label, in the order in which they are shown."""

    verb: str
    config: dict[str, Any]
    environment: dict[str, Any]
    diagnoses: dict[str, Diagnosis]
    trainings: dict[str, Training]
    repair: Repair | None
    experiment: Experiment | None
    doctor: Doctor | None
    evaluations: dict[str, TaskEvaluation]
    """By task."""
    cells: dict[str, int]
    """Task -> cells of it that are done, of the tasks that are not."""
    overview: Overview | None
    measures: dict[str, dict[str, Any]]
    """Measure -> label -> its record (``everlong.records.measurements``)."""
    losses: dict[str, tuple[tuple[int, float], ...]]
    """Phase of training -> (step, loss)."""

    @property
    def labels(self) -> tuple[str, ...]:
        """All models and arms, so that each keeps its look in every figure."""
        rows = [row.label for row in self.repair.rows] if self.repair else []
        rows += [arm.label for arm in self.experiment.arms] if self.experiment else []
        rows += self.overview.labels if self.overview else []
        return tuple(dict.fromkeys([*rows, *_ordered({*self.diagnoses, *self.trainings, *self.losses})]))

    @property
    def base(self) -> Diagnosis | None:
        """The model that the others are set against: before repair, else the first."""
        return self.diagnoses.get("before") or next(iter(self.diagnoses.values()), None)

    @property
    def finished(self) -> bool:
        """Whether the record that ends the verb's work is there."""
        if self.verb == "evaluate":
            return bool(self.evaluations) and all(task in self.evaluations for task in self.config.get("task", ()))
        repaired = self.repair or self.experiment
        last = {"diagnose": self.overview, "repair": repaired, "train": self.trainings, "doctor": self.doctor}
        return bool(last.get(self.verb, self.diagnoses))

    @property
    def resumes(self) -> bool:
        """Whether the verb has --resume."""
        return self.verb != "doctor"

    def name(self, label: str) -> str:
        """The name of a model: outside a repair nothing comes "before", so the model goes by its own name."""
        if label == "before" and self.verb != "repair" and label in self.diagnoses:
            return self.diagnoses[label].model
        return method_name(label)


def load_results(run: Run) -> Results:
    """Reads every record of a run; what is not there is left out.

    Raises:
        EverlongError: a record is there and not readable.
    """
    names = [path.stem for path in (run.path / "records").glob("*.json") if not path.name.startswith(".")]
    return Results(
        verb=run.verb,
        config=dict(run.config),
        environment=_read_environment(run),
        diagnoses=_family(run, "diagnosis-", names),
        trainings=_family(run, "training-", names),
        repair=run.load("repair") if "repair" in names else None,
        experiment=run.load("experiment") if "experiment" in names else None,
        doctor=run.load("doctor") if "doctor" in names else None,
        evaluations=_evaluations(run, names),
        cells=_unfinished_cells(names),
        overview=run.load("overview") if "overview" in names else None,
        measures={measure: _family(run, f"{measure}-", names) for measure in MEASURES},
        losses=_read_losses(run),
    )


def mean_losses(losses: np.ndarray, targets: np.ndarray | None = None) -> np.ndarray:
    """Means over documents by bucket, each document once; not-a-number where none reaches."""
    there = np.isfinite(losses) if targets is None else np.isfinite(losses) & (targets > 0)
    documents = there.sum(axis=0)
    total = np.where(there, losses, 0.0).sum(axis=0)
    return np.divide(total, documents, out=np.full(documents.shape, np.nan), where=documents > 0)


def _family(run: Run, prefix: str, names: list[str]) -> dict[str, Any]:
    labels = {name.removeprefix(prefix) for name in names if name.startswith(prefix)}
    return {label: run.load(prefix + label) for label in _ordered(labels)}


def _evaluations(run: Run, names: list[str]) -> dict[str, TaskEvaluation]:
    """In the order in which the tasks were asked for."""
    found = _family(run, "evaluation-", names)
    return {task: found[task] for task in dict.fromkeys([*(run.config.get("task") or ()), *found]) if task in found}


def _unfinished_cells(names: list[str]) -> dict[str, int]:
    tasks = [name.split("-")[1] for name in sorted(names) if name.startswith("cell-")]
    return {task: tasks.count(task) for task in dict.fromkeys(tasks) if f"evaluation-{task}" not in names}


def _ordered(labels: set[str]) -> list[str]:
    return sorted(labels, key=lambda label: (FIRST.index(label) if label in FIRST else len(FIRST), label))


def _read_environment(run: Run) -> dict[str, Any]:
    path = run.path / "environment.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _read_losses(run: Run) -> dict[str, tuple[tuple[int, float], ...]]:
    path = run.path / "metrics.jsonl"
    phases: dict[str, dict[int, float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            entry = json.loads(line)
            phase, step, loss = str(entry["phase"]), int(entry["step"]), float(entry["loss"])
        except (ValueError, KeyError, TypeError):
            continue  # a line torn by a kill, or one that tells of something else
        phases.setdefault(phase.removeprefix("training-"), {})[step] = loss
    return {phase: tuple(sorted(phases[phase].items())) for phase in _ordered(set(phases))}
