"""Does exposure to old states set what a repair leaves? It is varied in several ways, and held in several ways.

    python -m everlong.recipes.exposure --output runs/exposure --bases BASE BASE BASE --max-length 4096 --documents 16

Exposure to age t is the number of scored tokens whose state is at least t tokens old, each weighted by its learning
rate; here over the reference's peak, so that rates compare. Each base is trained on by state passing at one reference
setting and at settings that differ from it: at a fixed context / reset probability the steps, the batch, the rate or
the context; then by pairs of settings of one exposure. If exposure were all, a pair would leave the same excess. In the
last, old states are not carried but read anew before each row, without a gradient, from the row's own document.
"""

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from everlong.data.config import DataConfig
from everlong.diagnostics.comparison import BEFORE, CONTROL
from everlong.diagnostics.config import DiagnosisConfig
from everlong.diagnostics.over_bases import over_bases
from everlong.errors import EverlongError
from everlong.recipes._command import start
from everlong.recipes._exposure_study import exposure_lines, exposure_study
from everlong.records.experiment import Experiment
from everlong.records.files import save_record
from everlong.records.repair import Repair
from everlong.records.sweep import ExposureStudy
from everlong.records.training import Training
from everlong.training.config import TrainingConfig
from everlong.workflows._nested import in_folder
from everlong.workflows._outcome import summarize
from everlong.workflows.config import DiagnoseConfig, MachineConfig, RuntimeConfig, TrainConfig
from everlong.workflows.diagnose import diagnose
from everlong.workflows.train import FINETUNED, train

REFERENCE = "reference"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A way to train, in multiples of the reference."""

    steps: int = 1
    rows: float = 1.0
    rate: float = 1.0
    context: int = 1
    reset: float = 1.0
    method: str = "state_passing"
    prefix: int = 0
    """Longest of a burn-in, in contexts of the base; no row starts from zero beside it."""

    def arm(self, recipe: "ExposureRecipe") -> str:
        """The method, as it is written."""
        if self.method == "state_passing":
            return f"state_passing,reset_probability={recipe.reset_probability * self.reset:g}"
        return f"burn_in,longest_prefix={self.prefix * recipe.context}" if self.method == "burn_in" else self.method

    def training(self, recipe: "ExposureRecipe") -> TrainingConfig:
        """Steps, rows and rate."""
        rate = recipe.learning_rate * self.rate
        return TrainingConfig(
            steps=recipe.steps * self.steps,
            batch_size=max(1, round(recipe.batch_size * self.rows)),
            learning_rate=rate,
            learning_rate_floor=min(TrainingConfig.learning_rate_floor, rate),
        )

    def words(self, recipe: "ExposureRecipe") -> str:
        """All of it."""
        training = self.training(recipe)
        return (
            f"{training.steps} steps of {training.batch_size} rows of {recipe.context * self.context}, rate "
            f"{training.learning_rate:g}, {self.arm(recipe).replace(',', ', ').replace('_', ' ')}"
        )


SETTINGS = {
    CONTROL: Setting(method="zero"),
    REFERENCE: Setting(),
    "steps-x3": Setting(steps=3),
    "batch-x3": Setting(rows=3.0),
    "rate-x3": Setting(rate=3.0),
    "context-x4": Setting(context=4, rows=1 / 4, reset=4.0),
    "half-batch-twice-steps": Setting(rows=1 / 2, steps=2),
    "half-batch-twice-rate": Setting(rows=1 / 2, rate=2.0),
    "half-reset": Setting(rows=0.65, reset=1 / 2),
    "burn-in": Setting(rows=1 / 2, rate=2.0, method="burn_in", prefix=13),
}
HELD = (
    (REFERENCE, "half-batch-twice-steps"),
    (REFERENCE, "half-batch-twice-rate"),
    (REFERENCE, "half-reset"),
    ("steps-x3", "batch-x3"),
    ("steps-x3", "rate-x3"),
    ("batch-x3", "rate-x3"),
    ("half-batch-twice-rate", "burn-in"),
)
"""Pairs of one exposure to states of eight contexts. Beyond, half-reset has more and burn-in has none; more steps carry
states farther than more rows, and the rest are alike."""
AGES = (8, 16, 32, 64)
"""In contexts of the base."""
FEWEST_STEPS = 16  # with as many, every run counts exposure to the first of these ages


@dataclass(frozen=True, kw_only=True)
class ExposureRecipe:
    """Trains each base on at every setting, measures what comes out, and sets excess against exposure."""

    output: Path
    """Folder for the runs; runs that are there already are gone on with."""
    bases: tuple[str, ...]
    """Folders of models."""
    context: int = 64
    """Tokens at a time that the bases were trained at."""
    steps: int = 100
    """Of the reference; the following three too."""
    batch_size: int = 16
    """Rows."""
    learning_rate: float = 3e-4
    """Peak."""
    reset_probability: float = 0.1
    """Share of rows that start from zero."""
    data: DataConfig = field(default_factory=lambda: DataConfig(tokenizer="bytes"))
    diagnosis: DiagnosisConfig = field(default_factory=DiagnosisConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)


def main(recipe: ExposureRecipe) -> tuple[ExposureStudy, Experiment]:
    """Runs what is not there yet, saves what came of it in records/ and prints the tables."""
    if not recipe.bases:
        raise EverlongError("--bases is empty; give folders of models")
    if recipe.steps < FEWEST_STEPS:
        raise EverlongError(f"--steps {recipe.steps} is too few; {FEWEST_STEPS} carry a state to {AGES[0]} contexts")
    if recipe.data.data and not recipe.data.held_out:
        raise EverlongError("--data needs --held-out beside it: what is measured must not be trained on")
    repairs, exposure, step_tokens = [], {}, {}
    for place, base in enumerate(recipe.bases):
        folder = recipe.output / f"base-{place}"
        trainings = {label: _train(recipe, base, setting, folder / label) for label, setting in SETTINGS.items()}
        repairs.append([_measure(recipe, base, folder, trainings)])
        exposure = {label: _exposure(recipe, label, training) for label, training in trainings.items()}
        step_tokens = {label: training.scored_tokens // training.steps for label, training in trainings.items()}
    experiment = over_bases(
        repairs,
        bases=recipe.bases,
        seeds=[recipe.machine.seed],
        runs=[f"base-{place}/diagnosis" for place in range(len(recipe.bases))],
        seconds={f"base-{place}": sum(repair.seconds.values()) for place, (repair,) in enumerate(repairs)},
    )
    words = {label: setting.words(recipe) for label, setting in SETTINGS.items()}
    ages = [age * recipe.context for age in AGES]
    study = exposure_study(experiment, words, exposure, step_tokens, ages, HELD)
    for name, record in (("experiment", experiment), ("exposure", study)):
        save_record(record, recipe.output / "records" / f"{name}.json")
    print("\n".join(exposure_lines(study, experiment)), flush=True)
    return study, experiment


def _train(recipe: ExposureRecipe, base: str, setting: Setting, folder: Path) -> Training:
    config = TrainConfig(
        start=base,
        context=recipe.context * setting.context,
        method=setting.arm(recipe),
        training=setting.training(recipe),
        data=recipe.data,
        runtime=_runtime(recipe),
    )
    return train(in_folder(config, folder))[0]


def _measure(recipe: ExposureRecipe, base: str, folder: Path, trainings: Mapping[str, Training]) -> Repair:
    """All models of a base on the same text, as arms: windows are of the base's context, whatever the rows were."""
    config = DiagnoseConfig(
        models=(base, *(str(folder / label / "models" / FINETUNED) for label in trainings)),
        context=recipe.context,
        measures=("none",),
        data=recipe.data,
        diagnosis=recipe.diagnosis,
        runtime=_runtime(recipe),
    )
    diagnosed = diagnose(in_folder(config, folder / "diagnosis")).diagnoses.values()
    arms = {label: replace(found, label=label) for label, found in zip((BEFORE, *trainings), diagnosed, strict=True)}
    return summarize(arms, trainings, proposal="exposure is varied and held; see each setting")


def _exposure(recipe: ExposureRecipe, label: str, training: Training) -> list[float]:
    """At each age; a run counts up to the oldest state that it can have met, and beyond there is none."""
    counted = dict(zip(training.exposure.ages, training.exposure.tokens, strict=True))
    return [SETTINGS[label].rate * counted.get(age * recipe.context, 0.0) for age in AGES]


def _runtime(recipe: ExposureRecipe) -> RuntimeConfig:
    return RuntimeConfig(**asdict(recipe.machine))


if __name__ == "__main__":
    sys.exit(start(main, ExposureRecipe))
