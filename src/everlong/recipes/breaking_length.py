"""Is the breaking length that decays and in-range states predict the one that is measured? One model a context.

    python -m everlong.recipes.breaking_length --output runs/breaking-length --contexts 32 64 128 256

Trains the bundled model's recipe at several contexts (everything else equal, the tokens of a step too) and diagnoses
each, and beside them models that are there already (``--models``: of other seeds, say): a line a model, the predicted
break (``decay_horizons``), the verdict's, which is where harm is sure, and where the mean excess passes the
tolerance. Runs that are there already are gone on with.

Last: does the prediction say more than the training length itself does? Rank correlations with where the excess
passes the tolerance, and how far the ratio to it spreads over the models, in octaves; both beside those of T.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from everlong.crossing import Crossing, crossing
from everlong.data.config import DataConfig
from everlong.diagnostics.config import DiagnosisConfig
from everlong.recipes._command import start
from everlong.recipes._ranks import rank_correlation
from everlong.workflows._nested import in_folder
from everlong.workflows.config import DiagnoseConfig, RuntimeConfig, TrainConfig
from everlong.workflows.diagnose import diagnose
from everlong.workflows.train import train

STEP_TOKENS = 32 * 64  # the bundled model's
FEWEST_MODELS = 3  # that a rank correlation is taken over


@dataclass(frozen=True, kw_only=True)
class BreakingLengthRecipe:
    """Trains and diagnoses a model at each of several contexts."""

    output: Path
    """Folder for the runs; runs that are there already are gone on with."""
    contexts: tuple[int, ...] = (32, 64, 128, 256)
    """Training lengths in tokens."""
    models: tuple[str, ...] = ()
    """Further models to diagnose, which know the context that they were trained at: folders, files, hub ids."""
    steps: int = 1500
    """Of training, each of as many tokens as 32 rows of 64."""
    data: DataConfig = field(default_factory=lambda: DataConfig(tokenizer="bytes"))
    diagnosis: DiagnosisConfig = field(default_factory=lambda: DiagnosisConfig(documents=16))
    seed: int = 0
    """Of everything that is drawn."""


@dataclass(frozen=True)
class Break:
    """What came of one model; None: nowhere up to the diagnosed length."""

    context: int
    predicted: int | None
    measured: int | None
    passes: Crossing

    @property
    def words(self) -> str:
        """A line."""
        found = [f"{value:,}" if value else "none" for value in (self.predicted, self.measured)]
        line = f"context {self.context:,}: predicted break {found[0]}, measured {found[1]}, "
        line += f"the mean excess passes the tolerance at {self.passes}"
        if self.predicted and self.passes.position:
            line += f", predicted / that {self.predicted / self.passes.position:.2f}"
        return line


def main(recipe: BreakingLengthRecipe) -> tuple[Break, ...]:
    """Runs the contexts one after the other, then the further models."""
    breaks = []
    for name, model in _models(recipe):
        breaks.append(_diagnosed(recipe, name, model))
        print(breaks[-1].words, flush=True)
    print(compared(breaks), flush=True)
    return tuple(breaks)


def compared(breaks: list[Break]) -> str:
    """Whether the prediction says more than T alone, over the models for which there is something to compare."""
    there = [(b.predicted, b.context, b.passes.position) for b in breaks if b.predicted and b.passes.position]
    if len(there) < FEWEST_MODELS:
        return f"{len(there)} models to compare, {FEWEST_MODELS} are needed"
    predicted, context, measured = np.log2(np.array(there, dtype=float)).T
    lines = [f"{len(there)} models:"]
    for name, by in (("prediction", predicted), ("training length", context)):
        rank = rank_correlation(by, measured)
        ratio = by - measured
        lines.append(
            f"{name} / measured {2 ** ratio.mean():.2f} in the geometric mean, "
            f"standard deviation {ratio.std(ddof=1):.2f} octaves, rank correlation {rank:+.2f}"
        )
    return "\n  ".join(lines)


def _models(recipe: BreakingLengthRecipe) -> Iterator[tuple[str, str]]:
    """A name for its diagnosis, and the model; trained here where need be."""
    default, runtime = TrainConfig(), RuntimeConfig(seed=recipe.seed)
    for context in recipe.contexts:
        base = recipe.output / f"base-{context}"
        training = replace(default.training, steps=recipe.steps, batch_size=max(1, STEP_TOKENS // context))
        train(in_folder(TrainConfig(context=context, training=training, data=recipe.data, runtime=runtime), base))
        yield f"diagnosis-{context}", str(base / "models" / "scratch")
    for index, model in enumerate(recipe.models):
        yield f"diagnosis-model-{index}", model


def _diagnosed(recipe: BreakingLengthRecipe, name: str, model: str) -> Break:
    config = DiagnoseConfig(
        models=(model,),
        measures=("decay_horizons",),
        data=recipe.data,
        diagnosis=recipe.diagnosis,
        runtime=RuntimeConfig(seed=recipe.seed),
    )
    diagnosed = diagnose(in_folder(config, recipe.output / name))
    (diagnosis,) = diagnosed.diagnoses.values()
    verdict = diagnosis.verdict
    predicted = [record.predicted_break for record in diagnosed.measures["decay_horizons"].values()]
    return Break(
        diagnosis.context,
        predicted[0] if predicted else None,
        verdict.position if verdict.outcome == "breaks" else None,
        crossing(diagnosis),
    )


if __name__ == "__main__":
    sys.exit(start(main, BreakingLengthRecipe))
