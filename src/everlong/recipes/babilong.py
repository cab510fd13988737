"""BABILong, as in Fig. 6: a base before and after its repair, few-shot and fine-tuned for one epoch without methods.

    python -m everlong.recipes.babilong --books BOOKS --babi BABI/en --tokenizer bpe4096.json --output runs/babilong

BABI holds bAbI's files. The base, on books in the planted slow-decay regime, is shown to fail by paired excess; it, its
zero control and its repair by state passing are then asked few-shot, and again after one epoch of fine-tuning in which
every row starts from zero. Facts and books are of the test files and of held-out books. Only a score above its floor,
the most frequent answer's, says anything; the share of outputs that name any label stands beside it.
"""

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from everlong.data.config import DataConfig
from everlong.recipes._command import start
from everlong.recipes._learning import BaseConfig, beyond, difference, learn, repaired_bases, shares
from everlong.records.sweep import Sweep
from everlong.reports._words import method_name
from everlong.tasks._babi import read_questions
from everlong.tasks.config import BABILongConfig, TasksConfig
from everlong.tasks.over_seeds import Learned
from everlong.training.config import TrainingConfig
from everlong.workflows.config import EvaluateConfig, TrainConfig
from everlong.workflows.sweep import Way

WORDS = {
    "before": "the base",
    "zero": "the base after as many steps on books, every row from zero",
    "state_passing": "the base repaired by state passing on books",
}


@dataclass(frozen=True, kw_only=True)
class BABILongRecipe(BaseConfig):
    """Asks a base and its repairs BABILong's questions."""

    babi: str
    """The folder of bAbI's files."""
    questions: tuple[str, ...] = ("qa1", "qa2", "qa3")
    """Which of qa1 to qa10."""
    vocab_size: int = 4096
    """Ids of the tokenizer."""
    context: int = 512
    """Training length of the base and of the fine-tuning: half of qa3's questions fit, in 4096-BPE tokens."""
    rows: int = 4
    """Of one training context, in every step."""
    farthest: int = 16
    """Training lengths in the longest prompt."""
    learned_at: float = 0.5
    """Accuracy in range from which on a seed has learned."""
    epochs: int = 1
    """Of the fine-tuning."""


def main(recipe: BABILongRecipe) -> dict[str, Sweep | None]:
    """Runs what is not there yet and prints the tables: few-shot, then fine-tuned."""
    models, verdict = repaired_bases(recipe)
    settings = {"base": verdict, "rows": recipe.rows, "epochs": recipe.epochs}
    lengths = [recipe.context << power for power in range(recipe.farthest.bit_length())]
    few_shot = learn(
        replace(recipe, seeds=1, learning_rates=recipe.learning_rates[:1]),
        {label: Way(words=WORDS[label], start=model) for label, model in models.items()},
        # The shots leave no room for qa3 in one training length; length 0 is the facts alone.
        (_evaluation(recipe, [0, *lengths[1:]], few_shot=True),),
        Learned(measure="accuracy", bound=recipe.learned_at, lengths=(0,)),
        settings=settings,
        say=sentence,
        folder=recipe.output / "few-shot",
    )
    fine_tuned = learn(
        recipe,
        {label: Way(words=f"{WORDS[label]}, fine-tuned", stages=(_stage(recipe, at),)) for label, at in models.items()},
        (_evaluation(recipe, lengths, few_shot=False),),
        Learned(measure="accuracy", bound=recipe.learned_at, lengths=(recipe.context,)),
        settings=settings,
        say=sentence,
        folder=recipe.output / "fine-tuned",
    )
    return {"few-shot": few_shot, "fine-tuned": fine_tuned}


def sentence(record: Sweep) -> str:
    """How many cells of each arm lie surely above the floor, within the training length and beyond it."""
    words = [shares(record)] if np.isfinite(record.arms[0].losses).all() else []  # few-shot, nothing is learned
    far = beyond(record)
    for arm in record.arms:
        above = [float(arm.lower[place]) > max(record.floors[place].values()) for place in range(len(record.cells))]
        words.append(
            f"{method_name(arm.label)}: surely above the floor in {sum(above[i] for i in record.in_range)} of "
            f"{len(record.in_range)} cells in range and {sum(above[i] for i in far)} of {len(far)} beyond."
        )
    mean, lower, upper = (values[far] for values in difference(record, "state_passing", "zero"))
    words.append(
        f"State passing minus the control beyond the training length: {mean.mean():+.3f} in the mean, surely better in "
        f"{int((lower > 0).sum())} and worse in {int((upper < 0).sum())} of {len(far)} cells."
    )
    return " ".join(words)


def _evaluation(recipe: BABILongRecipe, lengths: list[int], *, few_shot: bool) -> EvaluateConfig:
    return EvaluateConfig(
        task=("babilong",),
        lengths=tuple(map(str, lengths)),
        examples=recipe.examples,
        tasks=_tasks(recipe, "test", few_shot=few_shot),
        runtime=recipe.runtime(),
    )


def _tasks(recipe: BABILongRecipe, books: str, *, few_shot: bool) -> TasksConfig:
    text: Path = recipe.books / books
    return TasksConfig(
        babilong=BABILongConfig(babi=recipe.babi, books=(str(text),), questions=recipe.questions, few_shot=few_shot)
    )


def _stage(recipe: BABILongRecipe, start: str) -> TrainConfig:
    """One epoch: every question of the training files once, but for those that do not fit, whose turn others take."""
    questions = sum(len(read_questions(recipe.babi, name, training=True)) for name in recipe.questions)
    steps = max(1, recipe.epochs * questions // recipe.rows)
    return TrainConfig(
        start=start,
        context=recipe.context,
        task="babilong",
        tasks=_tasks(recipe, "train", few_shot=False),
        training=replace(TrainingConfig(), steps=steps, batch_size=recipe.rows, on_nonfinite="skip"),
        data=DataConfig(tokenizer=recipe.tokenizer),
        runtime=recipe.runtime(),
    )


if __name__ == "__main__":
    sys.exit(start(main, BABILongRecipe))
