"""Recall under load: the number of facts and their distance swept apart, before and after the base's repair.

    python -m everlong.recipes.recall --books BOOKS --output runs/recall

The base, its zero control and its repair by state passing are fine-tuned on recall at their short context, every row
from zero. Then facts are asked for where they come first, in ever longer texts; and at every distance in one long text.
Many facts that are lost at any distance: the state is full, which no repair mends. Few facts that are lost only where
the whole is long: the state is strange, which a repair should mend.
"""

import sys
from dataclasses import dataclass, replace

from everlong.data.config import DataConfig
from everlong.recipes._command import start
from everlong.recipes._learning import BaseConfig, beyond, learn, repaired_bases, shares
from everlong.recipes.babilong import WORDS
from everlong.records.sweep import Sweep
from everlong.reports._words import method_name
from everlong.tasks.config import RecallConfig, TasksConfig
from everlong.tasks.over_seeds import Learned
from everlong.training.config import TrainingConfig
from everlong.workflows.config import EvaluateConfig, TrainConfig
from everlong.workflows.sweep import Way


@dataclass(frozen=True, kw_only=True)
class RecallRecipe(BaseConfig):
    """Asks a base and its repairs for facts."""

    facts: tuple[int, ...] = (1, 4, 16)
    """Numbers of facts."""
    steps: int = 1000
    """Of the fine-tuning."""
    farthest: int = 16
    """Training lengths in the longest text."""
    learned_at: float = 0.6
    """Accuracy in range, over all numbers of facts, from which on a seed has learned."""


def main(recipe: RecallRecipe) -> Sweep | None:
    """Runs what is not there yet and prints the table."""
    models, verdict = repaired_bases(recipe)
    lengths = [recipe.context << power for power in range(recipe.farthest.bit_length())]
    distances = tuple(sorted({0, recipe.context // 4, *(length // 2 for length in lengths)}))
    return learn(
        recipe,
        {label: Way(words=f"{WORDS[label]}, fine-tuned", stages=(_stage(recipe, at),)) for label, at in models.items()},
        (_evaluation(recipe, lengths, ()), _evaluation(recipe, lengths[-1:], distances)),
        Learned(measure="accuracy", bound=recipe.learned_at, lengths=(recipe.context,)),
        settings={"base": verdict, "steps": recipe.steps, "rows": recipe.rows},
        say=sentence,
    )


def sentence(record: Sweep) -> str:
    """By the number of facts: accuracy in range and beyond, arm by arm."""
    words, far = [shares(record)], beyond(record)
    for facts in sorted({cell["facts"] for cell in record.cells}):
        places = record.cells_at(facts=facts)
        arms = ", ".join(
            f"{method_name(arm.label)} {arm.mean[[i for i in places if i in record.in_range]].mean():.2f} in range, "
            f"{arm.mean[[i for i in places if i in far]].mean():.2f} beyond"
            for arm in record.arms
        )
        floor = max(max(record.floors[place].values()) for place in places if place in record.in_range)
        words.append(f"{facts} fact{'s' if facts > 1 else ''} (floor in range {floor:.2f}): {arms}.")
    return " ".join(words)


def _evaluation(recipe: RecallRecipe, lengths: list[int], distances: tuple[int, ...]) -> EvaluateConfig:
    return EvaluateConfig(
        task=("recall",),
        lengths=tuple(map(str, lengths)),
        examples=recipe.examples,
        tasks=TasksConfig(recall=RecallConfig(facts=recipe.facts, distances=distances)),
        runtime=recipe.runtime(),
    )


def _stage(recipe: RecallRecipe, start: str) -> TrainConfig:
    return TrainConfig(
        start=start,
        context=recipe.context,
        task="recall",
        tasks=TasksConfig(recall=RecallConfig(facts=recipe.facts)),
        training=replace(TrainingConfig(), steps=recipe.steps, batch_size=recipe.rows, on_nonfinite="skip"),
        data=DataConfig(tokenizer=recipe.tokenizer),
        runtime=recipe.runtime(),
    )


if __name__ == "__main__":
    sys.exit(start(main, RecallRecipe))
