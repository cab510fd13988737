"""Copying, as in Table 1: a Mamba-2 from scratch on short strings, plain and with state passing, over many seeds.

    python -m everlong.recipes.copying --output runs/copying
    python -m everlong.recipes.copying --output runs/copying-short --shortest 10 --longest 20 --curriculum 5-10:900

What is learned at all is a lottery over seeds: so ten of them, two learning rates, the share that learn, and the arms
paired on the seeds. Character accuracy is teacher-forced, as in the table; free-running accuracy and exact matches
stand beside it. Before the lengths that count, shorter strings are trained on (--curriculum), to bring copying within
minutes for a small model; the paper has no such thing. Its first stage both arms have in common, every row from zero:
states that are passed from the first step on take a small model several times as long to learn copying at all
(--passing-from 0 does so, as the paper does), and states that are passed to a model of long strings undo what it has
learned. Of Table 1 it tests the direction alone: 0.27 to 0.47 at length 300, after 50-100, in a model of 45M with 1M
strings.
"""

import sys
from dataclasses import dataclass, replace

from everlong.data.config import DataConfig
from everlong.errors import EverlongError
from everlong.models.config import Mamba2Config
from everlong.recipes._command import start
from everlong.recipes._learning import LearningConfig, learn, shares
from everlong.records.sweep import Sweep
from everlong.reports._words import plural
from everlong.tasks.config import CopyingConfig, TasksConfig
from everlong.tasks.over_seeds import Learned
from everlong.training.config import TrainingConfig
from everlong.workflows.config import EvaluateConfig, TrainConfig
from everlong.workflows.sweep import Way

PLAIN, PASSING = "zero", "state_passing"


@dataclass(frozen=True, kw_only=True)
class CopyingRecipe(LearningConfig):
    """Learns copying from scratch, in both ways, under every seed and learning rate."""

    seeds: int = 10
    """How many, from --seed on."""
    learning_rates: tuple[float, ...] = (5e-3, 2.5e-3)
    """Peaks, each tried under every seed."""
    shortest: int = 50
    """Letters of the shortest string in training."""
    longest: int = 100
    """Letters of the longest string in training: the one in range that is scored, beside three times as many."""
    curriculum: tuple[str, ...] = ("5-10:900", "5-10:300", "10-20:300", "20-40:300")
    """Stages before it: shortest-longest:steps."""
    passing_from: int = 1
    """The stage, counted from 0, from which on states are passed; those before it are the same for both arms."""
    steps: int = 400
    """Steps at the lengths that count."""
    rows: int = 32
    """Strings a step."""
    reset_probability: float = 0.1
    """Of state passing."""
    learned_at: float = 0.9
    """Character accuracy in range from which on a seed has learned."""
    d_model: int = 64
    """Width."""
    n_layer: int = 2
    """Depth."""
    d_state: int = 128
    """Keys a head: with fewer than there are letters in a string, its places can no longer be told apart exactly."""
    headdim: int = 16
    """Values a head."""


def main(recipe: CopyingRecipe) -> Sweep | None:
    """Runs what is not there yet and prints the table."""
    model = Mamba2Config(
        vocab_size=256,
        d_model=recipe.d_model,
        n_layer=recipe.n_layer,
        d_state=recipe.d_state,
        headdim=recipe.headdim,
    )
    stages = [*map(_parsed, recipe.curriculum), (recipe.shortest, recipe.longest, recipe.steps)]
    methods = {PLAIN: "zero", PASSING: f"state_passing,reset_probability={recipe.reset_probability:g}"}
    words = {PLAIN: "every row starts from zero", PASSING: "rows start from the final states of the batch before"}
    ways = {
        label: Way(
            words=words[label],
            stages=tuple(
                _stage(recipe, model, method if number >= recipe.passing_from else methods[PLAIN], *stage)
                for number, stage in enumerate(stages)
            ),
        )
        for label, method in methods.items()
    }
    lengths = (recipe.longest, 3 * recipe.longest)
    evaluation = EvaluateConfig(
        task=("copying",), lengths=tuple(map(str, lengths)), examples=recipe.examples, runtime=recipe.runtime()
    )
    return learn(
        recipe,
        ways,
        (evaluation,),
        Learned(measure="character_accuracy", bound=recipe.learned_at, lengths=(recipe.longest,)),
        settings={"curriculum": list(recipe.curriculum), "passing_from": recipe.passing_from}
        | {"steps": recipe.steps, "rows": recipe.rows}
        | {"lengths": [recipe.shortest, recipe.longest], "reset_probability": recipe.reset_probability},
        say=sentence,
    )


def sentence(record: Sweep) -> str:
    """What the figures say of the direction of Table 1: state passing over plain, far beyond the training length."""
    far = record.cells.index(max(record.cells, key=lambda cell: cell["length"]))
    length = record.cells[far]["length"]
    plain, passing = (next(arm for arm in record.arms if arm.label == label) for label in (PLAIN, PASSING))
    words = [shares(record)]
    for pair in record.contrasts:
        mean, lower, upper = (-float(values[far]) for values in (pair.mean, pair.upper, pair.lower))
        seen = "is seen" if lower > 0 else "is reversed" if upper < 0 else "is not decided"
        words.append(
            f"At length {length:,}, over {pair.over} ({pair.seeds}), state passing minus plain is {mean:+.3f} "
            f"[{lower:+.3f}, {upper:+.3f}] in character accuracy: the direction of Table 1 {seen}."
        )
    words.append(
        f"Means over {plural(len(record.seeds), 'seed')}: plain {plain.mean[far]:.3f}, state passing "
        f"{passing.mean[far]:.3f} (Table 1: 0.27 and 0.47); a guess scores {record.floors[far]['chance']:.3f}."
    )
    if not (plain.learned[plain.chosen].any() or passing.learned[passing.chosen].any()):
        words.append("No seed learned the task in range: that says nothing about carrying it further.")
    return " ".join(words)


def _parsed(stage: str) -> tuple[int, int, int]:
    lengths, _, steps = stage.partition(":")
    shortest, _, longest = lengths.partition("-")
    try:
        return int(shortest), int(longest), int(steps)
    except ValueError:
        raise EverlongError(
            f"--curriculum {stage} is no stage; write shortest-longest:steps, such as 5-10:800"
        ) from None


def _stage(
    recipe: CopyingRecipe, model: Mamba2Config, method: str, shortest: int, longest: int, steps: int
) -> TrainConfig:
    return TrainConfig(
        model=model,
        context=2 * longest + 2,
        method=method,
        task="copying",
        tasks=TasksConfig(copying=CopyingConfig(copy_shortest=shortest, copy_longest=longest)),
        training=replace(
            TrainingConfig(), steps=steps, batch_size=recipe.rows, on_nonfinite="skip", checkpoint_every=500
        ),
        data=DataConfig(tokenizer="bytes"),
        runtime=recipe.runtime(),
    )


if __name__ == "__main__":
    sys.exit(start(main, CopyingRecipe))
