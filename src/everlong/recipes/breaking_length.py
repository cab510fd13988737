"""Is the breaking length that decays and in-range states predict the one that is measured? One model a context.

    python -m everlong.recipes.breaking_length --output runs/breaking-length --contexts 32 64 128 256

Trains the bundled model's recipe at several contexts (everything else equal, the tokens of a step too) and diagnoses
each: a line a model, the predicted break (``decay_horizons``) beside the measured one, and their ratio. Runs that are
there already are gone on with. Where a model does not break up to the diagnosed length there is nothing to compare.
"""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from everlong.data.config import DataConfig
from everlong.diagnostics.config import DiagnosisConfig
from everlong.recipes._command import start
from everlong.workflows._nested import in_folder
from everlong.workflows.config import DiagnoseConfig, RuntimeConfig, TrainConfig
from everlong.workflows.diagnose import diagnose
from everlong.workflows.train import train

STEP_TOKENS = 32 * 64  # the bundled model's


@dataclass(frozen=True, kw_only=True)
class BreakingLengthRecipe:
    """Trains and diagnoses a model at each of several contexts."""

    output: Path
    """Folder for the runs; runs that are there already are gone on with."""
    contexts: tuple[int, ...] = (32, 64, 128, 256)
    """Training lengths in tokens."""
    steps: int = 1500
    """Of training, each of as many tokens as 32 rows of 64."""
    data: DataConfig = field(default_factory=lambda: DataConfig(tokenizer="bytes"))
    diagnosis: DiagnosisConfig = field(default_factory=lambda: DiagnosisConfig(documents=16))
    seed: int = 0
    """Of everything that is drawn."""


@dataclass(frozen=True)
class Break:
    """What came of one context; None: nowhere up to the diagnosed length."""

    context: int
    predicted: int | None
    measured: int | None

    @property
    def words(self) -> str:
        """A line."""
        ratio = f", ratio {self.predicted / self.measured:.2f}" if self.predicted and self.measured else ""
        found = [f"{value:,}" if value else "none" for value in (self.predicted, self.measured)]
        return f"context {self.context:,}: predicted break {found[0]}, measured {found[1]}{ratio}"


def main(recipe: BreakingLengthRecipe) -> tuple[Break, ...]:
    """Runs the contexts one after the other."""
    default, runtime = TrainConfig(), RuntimeConfig(seed=recipe.seed)
    breaks = []
    for context in recipe.contexts:
        base = recipe.output / f"base-{context}"
        training = replace(default.training, steps=recipe.steps, batch_size=max(1, STEP_TOKENS // context))
        train(in_folder(TrainConfig(context=context, training=training, data=recipe.data, runtime=runtime), base))
        diagnosing = DiagnoseConfig(
            models=(str(base / "models" / "scratch"),),
            measures=("decay_horizons",),
            data=recipe.data,
            diagnosis=recipe.diagnosis,
            runtime=runtime,
        )
        diagnosed = diagnose(in_folder(diagnosing, recipe.output / f"diagnosis-{context}"))
        (verdict,) = (diagnosis.verdict for diagnosis in diagnosed.diagnoses.values())
        predicted = [record.predicted_break for record in diagnosed.measures["decay_horizons"].values()]
        measured = verdict.position if verdict.outcome == "breaks" else None
        breaks.append(Break(context, predicted[0] if predicted else None, measured))
        print(breaks[-1].words, flush=True)
    return tuple(breaks)


if __name__ == "__main__":
    sys.exit(start(main, BreakingLengthRecipe))
