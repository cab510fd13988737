"""The bundled model: three bases trained and repaired, the middle one bundled, the figures of all kept.

    python -m everlong.recipes.bundled_model --output runs/bundled

A byte-level Mamba-2 on the Python standard library's own sources, in the planted slow-decay regime: A is log-spaced
from 0.01 to 1 over the heads of a layer, so that in training at 64 bytes the state never fills up, and later does. It
shows collapse and its repair on two cores; it is no claim about models whose slow decays were learned.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile

import numpy as np

from everlong.data.standard_library import standard_library
from everlong.diagnostics.config import DiagnosisConfig
from everlong.recipes._command import start
from everlong.records.repair import Repair
from everlong.records.training import Training
from everlong.runs import environment, write_json
from everlong.workflows._nested import in_folder
from everlong.workflows._subject import bundled_folder
from everlong.workflows.config import RepairConfig, RuntimeConfig, TrainConfig
from everlong.workflows.repair import repair
from everlong.workflows.train import train

HELD_OUT = 48
RANGE = (1024, 4096)  # where the base must fail and the repair must mend


@dataclass(frozen=True, kw_only=True)
class BundledModelRecipe:
    """Trains and repairs three bases, and bundles the one in the middle by its excess loss at 1,024-4,096 bytes."""

    output: Path
    """Folder for the runs of all bases; runs that are there already are gone on with."""
    seeds: tuple[int, ...] = (0, 1, 2)
    """Of the bases."""


def main(recipe: BundledModelRecipe) -> None:
    """Runs the recipe and writes the bundled folder anew."""
    folder = bundled_folder()
    held_out = held_out_modules(folder)
    bases = {seed: _base(recipe.output, seed) for seed in recipe.seeds}
    ranked = sorted(bases, key=lambda seed: bases[seed]["before"]["excess"][0])
    chosen = ranked[len(ranked) // 2]
    source = recipe.output / f"base-{chosen}" / "models" / "scratch"
    for name in ("config.json", "model.safetensors"):
        copyfile(source / name, folder / name)
    write_json(
        folder / "record.json",
        {
            "what": __doc__,
            "recipe": "python -m everlong.recipes.bundled_model --output runs/bundled",
            "range": RANGE,
            "chosen_seed": chosen,
            "bases": bases,
            "environment": {name: value for name, value in environment().items() if name != "command"},
            "held_out": held_out,
        },
    )
    print(json.dumps(bases, indent=1))


def held_out_modules(folder: Path) -> list[str]:
    """The modules that are never trained on: those of the present record, else drawn once.

    The draw is over modules longer than the diagnosed length; the codecs of ``encodings``, tables alike but for their
    entries, are left to training.
    """
    path = folder / "record.json"
    if path.is_file():
        return json.loads(path.read_text(encoding="utf-8"))["held_out"]
    length = DiagnosisConfig().max_length
    long = [
        document.name
        for document in standard_library()
        if len(document.text.encode()) > length and not document.name.startswith("encodings.")
    ]
    drawn = np.random.default_rng(0).permutation(sorted(long))[:HELD_OUT]
    names = sorted(map(str, drawn))
    write_json(path, {"held_out": names})
    return names


def _base(output: Path, seed: int) -> dict:
    """Trains and repairs one base; its figures, the excess with its simultaneous interval in nats."""
    base, runtime = output / f"base-{seed}", RuntimeConfig(seed=seed)
    training, _ = train(in_folder(TrainConfig(runtime=runtime), base))
    config = RepairConfig(model=str(base / "models" / "scratch"), runtime=runtime)
    repaired = repair(in_folder(config, output / f"repair-{seed}"))
    return _figures(training, repaired.record)


def _figures(training: Training, record: Repair) -> dict:
    figures: dict = {
        "training_seconds": round(training.seconds),
        "training_tokens": training.scored_tokens,
        "proposal": record.proposal,
    }
    column = record.rows[0].own.starts.index(RANGE[0])
    last = len(record.rows[0].own.starts) - 1
    for row in record.rows:
        at = {"excess": column, "excess_farthest": last}
        figures[row.label] = {
            "in_range_perplexity": round(row.in_range_perplexity, 4),
            **{
                name: [round(values[i], 4) for values in (row.own.mean, row.own.lower, row.own.upper)]
                for name, i in at.items()
            },
            "verdict": row.verdict,
        }
    before = record.rows[0].own.mean[column]
    for row in record.rows[1:]:
        figures[row.label]["taken_away"] = round(1 - row.own.mean[column] / before, 4)
    return figures


if __name__ == "__main__":
    sys.exit(start(main, BundledModelRecipe))
