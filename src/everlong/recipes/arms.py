"""All arms over several bases: the paper's order, the noises taken apart, the ladder, rivals.

    python -m everlong.recipes.arms --output runs/arms --arms paper
    python -m everlong.recipes.arms --output runs/arms-wide --arms paper --d-model 256 --n-layer 8

The bases are the bundled model's recipe with seeds 0 to N - 1, in the planted slow-decay regime, or wider and deeper
models of the same regime. It shows collapse and the order of arms; it is no claim about models whose slow decays were
learned. `everlong repair --bases 5 --seeds 2 --methods ... --steps 100` is the same for the bundled model's size.
"""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from everlong.data.config import DataConfig
from everlong.diagnostics.config import DiagnosisConfig
from everlong.errors import EverlongError
from everlong.models.config import Mamba2Config
from everlong.recipes._command import start
from everlong.workflows._nested import in_folder
from everlong.workflows.config import MachineConfig, RepairConfig, RuntimeConfig, TrainConfig
from everlong.workflows.experiment import experiment
from everlong.workflows.train import SCRATCH, train

ARMS = {
    "paper": ("random_noise", "fitted_noise", "correlated_noise", "state_passing", "tbtt"),
    "noise": (
        "fitted_noise",
        "correlated_noise,variance=none,rank=0",
        "correlated_noise,variance=head,rank=0",
        "correlated_noise,mean=head,rank=0",
        "correlated_noise,rank=0",
        "correlated_noise,rank=8",
        "correlated_noise,rank=32",
        "state_passing",
    ),
    "scale": tuple(f"random_noise,scale={scale}" for scale in (0.01, 0.03, 0.1, 0.3, 1.0)),
    "ladder": (
        "state_passing",
        *(f"state_passing,permuted={level}" for level in ("layers", "heads", "channels", "elements")),
        "correlated_noise,rank=0",
        "fitted_noise",
    ),
    "rivals": (
        "longer_context",
        "burn_in",
        "burn_in,gradient=on",
        "state_passing",
        "tbtt",
        "tbtt,gradient_horizon_chunks=4",
    ),
    "prefill": tuple(
        f"{method},reset_probability=0.01{ahead}"
        for method in ("state_passing", "tbtt")
        for ahead in ("", ",prefill_steps=64")
    ),
}


@dataclass(frozen=True, kw_only=True)
class ArmsRecipe:
    """Trains bases and repairs each by every arm, at one budget."""

    output: Path
    """Folder for the runs; runs that are there already are gone on with, bases too."""
    arms: str = "paper"
    """Which list of arms: ladder, noise, paper, prefill, rivals, scale."""
    bases: int = 5
    """Bases to train, with seeds from --seed on"""
    seeds: int = 2
    """Repairs of each base by each arm."""
    d_model: int = 128
    """Width of the bases."""
    n_layer: int = 4
    """Depth of the bases."""
    training_steps: int = 1500
    """Of each base."""
    training_learning_rate: float = 3e-3
    """Peak, of each base."""
    steps: int = 100
    """Of each arm."""
    reset_probability: float | None = None
    """Share of rows that start from zero in every arm. Default: proposed by the diagnosed length."""
    diagnosis: DiagnosisConfig = field(default_factory=DiagnosisConfig)
    machine: MachineConfig = field(default_factory=MachineConfig)


def main(recipe: ArmsRecipe) -> None:
    """Trains what is not trained yet, and runs the experiment."""
    if recipe.arms not in ARMS:
        raise EverlongError(f"--arms {recipe.arms} is unknown; known: {', '.join(sorted(ARMS))}")
    models = tuple(_base(recipe, seed) for seed in range(recipe.bases))
    config = RepairConfig(
        bases=models,
        seeds=recipe.seeds,
        methods=ARMS[recipe.arms],
        steps=recipe.steps,
        reset_probability=recipe.reset_probability,
        diagnosis=recipe.diagnosis,
        runtime=_runtime(recipe, recipe.machine.seed),
    )
    experimented = experiment(in_folder(config, recipe.output / recipe.arms))
    print(f"{experimented.record.sentence}\n{experimented.page}", flush=True)


def _base(recipe: ArmsRecipe, seed: int) -> str:
    folder = recipe.output / "bases" / f"base-{seed}"
    if not (folder / "records" / f"training-{SCRATCH}.json").is_file():
        default = TrainConfig()
        assert isinstance(default.model, Mamba2Config)
        config = TrainConfig(
            model=replace(default.model, d_model=recipe.d_model, n_layer=recipe.n_layer),
            training=replace(
                default.training, steps=recipe.training_steps, learning_rate=recipe.training_learning_rate
            ),
            data=DataConfig(tokenizer="bytes"),
            runtime=_runtime(recipe, recipe.machine.seed + seed),
        )
        train(in_folder(config, folder))
    return str(folder / "models" / SCRATCH)


def _runtime(recipe: ArmsRecipe, seed: int) -> RuntimeConfig:
    machine = recipe.machine
    return RuntimeConfig(device=machine.device, dtype=machine.dtype, backend=machine.backend, seed=seed)


if __name__ == "__main__":
    sys.exit(start(main, ArmsRecipe))
