"""What the recipes of tasks share: their common settings, the base that is shown to fail, its repairs, and printing."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from everlong.data.config import DataConfig
from everlong.diagnostics.config import DiagnosisConfig
from everlong.errors import EverlongError
from everlong.models.config import Mamba2Config
from everlong.records.diagnosis import Diagnosis
from everlong.records.files import load_record
from everlong.records.sweep import Sweep
from everlong.reports._words import method_name
from everlong.reports.sweep_table import other_table, sweep_lines, sweep_table
from everlong.tasks.over_seeds import Learned
from everlong.workflows._nested import in_folder
from everlong.workflows.config import (
    DiagnoseConfig,
    EvaluateConfig,
    MachineConfig,
    RepairConfig,
    RuntimeConfig,
    TrainConfig,
)
from everlong.workflows.diagnose import diagnose
from everlong.workflows.repair import repair
from everlong.workflows.sweep import SweepConfig, Way, sweep
from everlong.workflows.train import SCRATCH, train

NATS = "nats"


@dataclass(frozen=True, kw_only=True)
class LearningConfig:
    """The settings that every recipe of a task has."""

    output: Path
    """Folder for all runs, the record, the figures; what is there already is gone on with."""
    seeds: int = 2
    """How many, from --seed on."""
    learning_rates: tuple[float, ...] = (1e-3, 3e-4)
    """Peaks, each tried under every seed."""
    examples: int = 50
    """In each cell, the same for every arm and seed."""
    minutes: float | None = None
    """No training is begun later than so; run again to go on. The record is over the seeds that are finished."""
    machine: MachineConfig = field(default_factory=MachineConfig)

    @property
    def each_seed(self) -> tuple[int, ...]:
        """The seeds."""
        return tuple(range(self.machine.seed, self.machine.seed + self.seeds))

    def runtime(self) -> RuntimeConfig:
        """Of the runs within this one."""
        machine = self.machine
        return RuntimeConfig(device=machine.device, dtype=machine.dtype, backend=machine.backend, seed=machine.seed)


@dataclass(frozen=True, kw_only=True)
class BaseConfig(LearningConfig):
    """The settings of recipes that begin from a base, trained on books in the planted slow-decay regime."""

    books: Path
    """Folder with train/ and test/, of .txt files longer than the diagnosed length."""
    bases: Path | None = None
    """Folder of the base and its repairs, which recipes of the same tokenizer and context can share. Default: base/ in
    --output."""
    tokenizer: str = "bytes"
    """Of the base."""
    vocab_size: int = 256
    """Ids of the tokenizer."""
    context: int = 256
    """Training length of the base and of the fine-tuning, in tokens."""
    rows: int = 8
    """Of one training context, in every step."""
    d_model: int = 128
    """Width."""
    n_layer: int = 4
    """Depth."""
    base_steps: int = 1500
    """Of the base, at a peak learning rate of 3e-3."""
    repair_steps: int = 200
    """Of the control and of state passing, where a recipe repairs the base first; of twice as many rows."""
    must_fail: bool = True
    """Stop where paired excess does not show the base to fail."""
    diagnosis: DiagnosisConfig = field(
        default_factory=lambda: DiagnosisConfig(max_length=4096, documents=16, quick=True)
    )

    @property
    def base_folder(self) -> Path:
        """Where base and repairs lie."""
        return self.bases or self.output / "base"

    def data(self) -> DataConfig:
        """The books."""
        train_on, held_out = str(self.books / "train"), str(self.books / "test")
        return DataConfig(data=(train_on,), held_out=(held_out,), tokenizer=self.tokenizer)


def trained_base(recipe: BaseConfig) -> str:
    """The base, trained where it is not there yet; one in --bases is taken as it is, if its context is right."""
    folder = recipe.base_folder / "train"
    record = folder / "records" / f"training-{SCRATCH}.json"
    if not record.is_file() or recipe.bases is None:
        default = TrainConfig()
        assert isinstance(default.model, Mamba2Config)
        model = replace(default.model, vocab_size=recipe.vocab_size, d_model=recipe.d_model, n_layer=recipe.n_layer)
        training = replace(default.training, steps=recipe.base_steps, batch_size=recipe.rows)
        asked = in_folder(
            TrainConfig(
                model=model, context=recipe.context, training=training, data=recipe.data(), runtime=recipe.runtime()
            ),
            folder,
        )
        if not record.is_file():
            train(asked)
    made = load_record(record)
    if made.context != recipe.context:
        raise EverlongError(
            f"the base in {recipe.base_folder} was trained at a context of {made.context:,}, this recipe's is "
            f"{recipe.context:,}: give --context {made.context} or another --bases"
        )
    return str(folder / made.model_folder)


def failing_base(recipe: BaseConfig) -> tuple[str, str]:
    """The base and the verdict on it, in words; paired excess must show that it fails."""
    model, folder = trained_base(recipe), recipe.base_folder / "diagnosis"
    found = list((folder / "records").glob("diagnosis-*.json"))
    if not found:
        config = DiagnoseConfig(models=(model,), measures=("none",), data=recipe.data(), diagnosis=recipe.diagnosis)
        diagnose(in_folder(replace(config, runtime=recipe.runtime()), folder))
        found = list((folder / "records").glob("diagnosis-*.json"))
    return model, _verdict(recipe, load_record(found[0]))


def repaired_bases(recipe: BaseConfig) -> tuple[dict[str, str], str]:
    """The base, its zero control and its repair by state passing, by label, and the verdicts, in words."""
    model, folder = trained_base(recipe), recipe.base_folder / "repair"
    if not (folder / "records" / "repair.json").is_file():
        config = RepairConfig(
            model=model,
            steps=recipe.repair_steps,
            batch_size=2 * recipe.rows,
            data=recipe.data(),
            diagnosis=recipe.diagnosis,
            runtime=recipe.runtime(),
        )
        repair(in_folder(config, folder))
    words = _verdict(recipe, load_record(folder / "records" / "diagnosis-before.json"))
    models = {label: str(folder / "models" / label) for label in ("zero", "state_passing")}
    return {"before": model, **models}, f"{words} {load_record(folder / 'records' / 'repair.json').sentence}"


def _verdict(recipe: BaseConfig, diagnosis: Diagnosis) -> str:
    words = diagnosis.verdict.sentence
    if recipe.must_fail and diagnosis.verdict.outcome != "breaks":
        raise EverlongError(
            f"the base in {recipe.base_folder} is not shown to fail: {words} Train it longer (--base-steps), or give "
            "--must-fail False"
        )
    return words


def learn(
    recipe: LearningConfig,
    ways: Mapping[str, Way],
    evaluations: tuple[EvaluateConfig, ...],
    learned: Learned,
    *,
    settings: Mapping[str, Any],
    say: Callable[[Sweep], str],
    folder: Path | None = None,
) -> Sweep | None:
    """The sweep of a recipe, and its tables on the screen.

    Args:
        recipe: its settings.
        ways: arms by label.
        evaluations: of every trial.
        learned: when a seed counts.
        settings: for the record.
        say: makes the sentence from the record.
        folder: of the sweep. Default: the recipe's own.
    """
    plan = SweepConfig(
        output=folder or recipe.output,
        ways=ways,
        learning_rates=recipe.learning_rates,
        seeds=recipe.each_seed,
        evaluations=evaluations,
        learned=learned,
        settings=settings,
        minutes=recipe.minutes,
    )
    record = sweep(plan, say)
    console = Console()
    if record is None:
        console.print(
            f"The time was up before every arm was through with one seed: run again to go on in {plan.output}."
        )
        return None
    if len(record.seeds) < len(plan.seeds):
        console.print(f"{len(record.seeds)} of {len(plan.seeds)} seeds are finished: run again to go on.")
    console.print(sweep_table(record))
    for measure in (*record.measures[1:], NATS):
        console.print(other_table(record, measure))
    for line in sweep_lines(record):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print(str(plan.output / "records" / "sweep.json"), soft_wrap=True, highlight=False, markup=False)
    return record


def shares(record: Sweep) -> str:
    """How many seeds learn, arm by arm."""
    of = len(record.seeds)
    return "Seeds that learn: " + ", ".join(
        f"{method_name(arm.label)} {int(arm.learned[arm.chosen].sum())} of {of}" for arm in record.arms
    ) + "."  # fmt: skip


def beyond(record: Sweep) -> list[int]:
    """Places of the cells beyond the training length."""
    return [place for place in range(len(record.cells)) if place not in record.in_range]


def difference(record: Sweep, first: str, second: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One arm minus another over all seeds, by cell: mean, lower and upper end."""
    for pair in record.contrasts:
        if pair.over == "all seeds" and (pair.first, pair.second) == (first, second):
            return pair.mean, pair.lower, pair.upper
        if pair.over == "all seeds" and (pair.first, pair.second) == (second, first):
            return -pair.mean, -pair.upper, -pair.lower
    raise AssertionError(f"the sweep has no arms {first} and {second}")
