"""A tiny regime for each architecture: train short on books, show whether it fails beyond, repair it in 100 steps.

    python -m everlong.recipes.regimes --books BOOKS --output runs/regimes --architectures gla mamba1 rwkv6

BOOKS holds train/ and test/, folders of .txt files longer than the diagnosed length. Byte-level models of about half a
million parameters at a context of 64 bytes, 1500 steps of 32 rows; what is found is in the run folders, and a line a
model is printed. A regime that does not fail at this size is a result too.
"""

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from everlong.data.config import DataConfig
from everlong.models.config import GLAConfig, Mamba1Config, Mamba2Config, RWKV6Config
from everlong.recipes._command import start
from everlong.workflows._nested import in_folder
from everlong.workflows.config import Architecture, RepairConfig, RuntimeConfig, TrainConfig
from everlong.workflows.repair import repair
from everlong.workflows.train import train

REGIMES: dict[str, Architecture] = {
    "gla": GLAConfig(
        vocab_size=256,
        d_model=128,
        n_layer=4,
        num_heads=1,
        expand_k=1.0,
        gate_logit_normalizer=1e8,
        tie_embeddings=True,
    ),
    "mamba1": Mamba1Config(vocab_size=256, d_model=128, n_layer=4, A_init_scale=0.01),
    "mamba2": Mamba2Config(vocab_size=256, d_model=128, n_layer=4, d_state=64, headdim=32),
    "rwkv6": RWKV6Config(vocab_size=256, d_model=128, n_layer=4, headdim=128, time_decay_range=(-21.0, -20.0)),
}


@dataclass(frozen=True, kw_only=True)
class RegimesRecipe:
    """Trains, diagnoses and repairs a tiny model of each architecture."""

    books: Path
    """Folder with train/ and test/."""
    output: Path
    """Folder for the runs; runs that are there already are gone on with."""
    architectures: tuple[str, ...] = field(default_factory=lambda: tuple(REGIMES))
    """Which of the regimes to run."""
    context: int = 64
    """Training length in bytes."""
    training_steps: int = 1500
    """Of the base."""
    repair_steps: int = 100
    """Of the control and of state passing."""
    seed: int = 0
    """Of everything that is drawn."""


def main(recipe: RegimesRecipe) -> None:
    """Runs the regimes one after the other."""
    data = DataConfig(data=(str(recipe.books / "train"),), held_out=(str(recipe.books / "test"),), tokenizer="bytes")
    runtime, default = RuntimeConfig(seed=recipe.seed), TrainConfig()
    for name in recipe.architectures:
        base = recipe.output / f"{name}-base"
        training = replace(default.training, steps=recipe.training_steps)
        config = TrainConfig(model=REGIMES[name], context=recipe.context, training=training, data=data, runtime=runtime)
        train(in_folder(config, base))
        model = str(base / "models" / "scratch")
        repairing = RepairConfig(model=model, steps=recipe.repair_steps, data=data, runtime=runtime)
        repaired = repair(in_folder(repairing, recipe.output / f"{name}-repair"))
        print(f"{name}: {repaired.diagnoses['before'].verdict.sentence} {repaired.record.sentence}", flush=True)


if __name__ == "__main__":
    sys.exit(start(main, RegimesRecipe))
