"""Passkey, as in Fig. 7: a base fine-tuned at its short context in several ways, asked at up to 64 times its length.

    python -m everlong.recipes.passkey --books BOOKS --output runs/passkey

The base is a byte model on books in the planted slow-decay regime, shown to fail by paired excess before the task is
run. "Plain" fine-tuning and the zero control are one and the same here: every row starts from zero. The share of rows
that do so all the same is equal in the arms that start from something else.
"""

import sys
from dataclasses import dataclass, replace

from everlong.data.config import DataConfig
from everlong.recipes._command import start
from everlong.recipes._learning import BaseConfig, beyond, difference, failing_base, learn, shares
from everlong.records.sweep import Sweep, SweepArm
from everlong.reports._words import method_name
from everlong.tasks.config import PasskeyConfig, TasksConfig
from everlong.tasks.over_seeds import Learned
from everlong.training.config import TrainingConfig
from everlong.workflows.config import EvaluateConfig, TrainConfig
from everlong.workflows.sweep import Way

UNTUNED, RIGHT = "untuned", 0.9


@dataclass(frozen=True, kw_only=True)
class PasskeyRecipe(BaseConfig):
    """Fine-tunes a base on passkeys in several ways."""

    seeds: int = 3
    """How many, from --seed on."""
    learning_rates: tuple[float, ...] = (2e-3, 1e-3)
    """Peaks, each tried under every seed."""
    examples: int = 20
    """In each cell, the same for every arm and seed."""
    context: int = 64
    """Training length of the base and of the fine-tuning, in tokens; the compact wording takes 49 bytes."""
    rows: int = 32
    """Of one training context, in every step."""
    steps: int = 600
    """Of the fine-tuning; plain learns the task in 200, the arms that start from other states in twice as many."""
    digits: int = 5
    """Of the key."""
    reset_probability: float = 0.1
    """Share of rows that start from zero all the same, under fitted noise and state passing alike."""
    farthest: int = 64
    """Training lengths in the longest prompt."""
    learned_at: float = 0.9
    """Accuracy in range from which on a seed has learned."""


def main(recipe: PasskeyRecipe) -> Sweep | None:
    """Runs what is not there yet and prints the table."""
    base, verdict = failing_base(recipe)
    reset = f"reset_probability={recipe.reset_probability:g}"
    tasks = TasksConfig(passkey=PasskeyConfig(wording="compact", digits=recipe.digits))

    def tuned(method: str, words: str) -> Way:
        training = replace(TrainingConfig(), steps=recipe.steps, batch_size=recipe.rows, on_nonfinite="skip")
        config = TrainConfig(
            start=base,
            context=recipe.context,
            method=method,
            task="passkey",
            tasks=tasks,
            training=training,
            data=DataConfig(tokenizer=recipe.tokenizer),
            runtime=recipe.runtime(),
        )
        return Way(words=words, stages=(config,))

    lengths = [recipe.context << power for power in range(recipe.farthest.bit_length())]
    evaluation = EvaluateConfig(
        task=("passkey",),
        lengths=tuple(map(str, lengths)),
        examples=recipe.examples,
        tasks=tasks,
        runtime=recipe.runtime(),
    )
    return learn(
        recipe,
        {
            UNTUNED: Way(words="the base as it is", start=base),
            "zero": tuned("zero", "plain: every row starts from zero, which is the control, too"),
            "fitted_noise": tuned(f"fitted_noise,{reset}", "rows start from noise fitted to final states"),
            "state_passing": tuned(f"state_passing,{reset}", "rows start from the final states of the batch before"),
        },
        (evaluation,),
        Learned(measure="accuracy", bound=recipe.learned_at, lengths=(recipe.context,)),
        settings={"base": verdict, "steps": recipe.steps, "rows": recipe.rows, "digits": recipe.digits}
        | {"reset_probability": recipe.reset_probability},
        say=sentence,
    )


def sentence(record: Sweep) -> str:
    """How far each arm carries the task, and the two questions of Fig. 7."""
    words = [shares(record)]
    far = beyond(record)
    for arm in record.arms:
        words.append(
            f"{method_name(arm.label)}: {_reach(record, arm)}; mean accuracy beyond the training length "
            f"{arm.mean[far].mean() if far else float('nan'):.2f}."
        )
    asked = (
        ("fitted_noise", "zero", "fitted noise carries further than plain, as Fig. 7 has it"),
        ("fitted_noise", "state_passing", "state passing is worse than fitted noise here, as the paper argues"),
    )
    for first, second, claim in asked:
        words += [_answer(record, first, second, claim)]
    return " ".join(words)


def _reach(record: Sweep, arm: SweepArm) -> str:
    """The longest length up to which every depth is right nine times of ten."""
    reached = 0
    for length in sorted({cell["length"] for cell in record.cells}):
        if min(arm.mean[place] for place in record.cells_at(length=length)) < RIGHT:
            break
        reached = length
    return (
        f"at least {RIGHT:g} at every depth up to {reached:,} tokens"
        if reached
        else f"nowhere {RIGHT:g} at every depth"
    )


def _answer(record: Sweep, first: str, second: str, claim: str) -> str:
    """How many cells beyond the training length speak for a claim, by their whole interval, and how many against."""
    places = beyond(record)
    mean, lower, upper = (values[places] for values in difference(record, first, second))
    return (
        f"That {claim}: {method_name(first)} minus {method_name(second)} beyond the training length is "
        f"{mean.mean():+.2f} in the mean; {int((lower > 0).sum())} of {len(places)} cells are surely for it, "
        f"{int((upper < 0).sum())} against."
    )


if __name__ == "__main__":
    sys.exit(start(main, PasskeyRecipe))
