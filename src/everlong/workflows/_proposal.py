"""From a wanted reach to a reset probability and a number of steps, by exposure: a proposal, not a promise.

Exposure to states of age t is the learning-rate-weighted share of scored tokens that training spends on states at least
t tokens old. There is no law of reach: excess falls smoothly with exposure, and a repair extends past the oldest state
that was met. The proposal asks for a share of SHARE at states half as old as the reach.
"""

from dataclasses import dataclass

from everlong.interventions.exposure import expected_exposure
from everlong.training.config import TrainingConfig
from everlong.training.schedule import relative_learning_rates
from everlong.workflows.config import RepairConfig

SHARE = 0.05
PROBABILITIES = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0)
STEPS = (100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2400, 3200)


@dataclass(frozen=True)
class Proposal:
    """The setting of a repair and how it came about, in words."""

    reset_probability: float
    steps: int
    words: str


def propose(config: RepairConfig, context: int) -> Proposal:
    """The fewest steps, and with them the largest reset probability, that spend SHARE of the training on old states.

    What the configuration sets is kept.
    """
    reach = config.reach or config.diagnosis.max_length
    age = max(context, reach // 2)
    candidates = [
        (steps, probability)
        for steps in ([config.steps] if config.steps else STEPS)
        for probability in ([config.reset_probability] if config.reset_probability is not None else PROBABILITIES)
    ]
    steps, probability = next(
        (pair for pair in candidates if exposure_share(config, context, *pair, age) >= SHARE), candidates[-1]
    )
    share = exposure_share(config, context, steps, probability, age)
    words = (
        f"For a reach of {reach:,} tokens: {steps} steps with reset probability {probability:g}. Expected exposure: "
        f"{share:.1%} of the training is spent on states at least {age:,} tokens old. Price in range: a share of "
        f"{probability:g} of the rows starts from zero, as all rows did in training, so a small share can cost perplexity "
        "within the training length; the table says how much it did. Nothing is promised."
    )
    return Proposal(probability, steps, words)


def exposure_share(config: RepairConfig, context: int, steps: int, probability: float, age: int) -> float:
    """The expected share of the learning-rate-weighted scored tokens whose state is at least ``age`` old."""
    training = TrainingConfig(steps=steps, batch_size=config.batch_size, learning_rate=config.learning_rate)
    rates = relative_learning_rates(training)
    (exposed,) = expected_exposure(
        context=context,
        batch_size=config.batch_size,
        learning_rates=rates,
        reset_probability=probability,
        ages=[age],
    )
    return exposed / (sum(rates) * context * config.batch_size)
