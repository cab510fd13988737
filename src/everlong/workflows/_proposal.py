"""From a wanted reach to a reset probability and a number of steps, by exposure: a proposal, not a promise.

Exposure to states of age t is the learning-rate-weighted share of the training that is spent on states at least t
tokens old. There is no law of reach: excess falls smoothly with exposure, and a repair extends past the oldest state
that was met. So the proposal lets a state be passed on for a quarter of the reach on average, and takes the fewest
steps that spend a fifth of the training on states at least that old.
"""

from dataclasses import dataclass

from everlong.interventions.exposure import expected_exposure
from everlong.training.config import TrainingConfig
from everlong.training.schedule import relative_learning_rates
from everlong.workflows.config import RepairConfig

QUARTER = 4
SHARE = 0.2
LARGEST_PROBABILITY = 0.1  # the paper's
STEPS = (100, 150, 200, 300, 400, 600, 800, 1200, 1600, 2400, 3200)


@dataclass(frozen=True)
class Proposal:
    """The setting of a repair and how it came about, in words."""

    reset_probability: float
    steps: int
    words: str


def propose(config: RepairConfig, context: int) -> Proposal:
    """A reset probability and a number of steps for the reach; what the configuration sets is kept."""
    reach = config.reach or config.diagnosis.max_length
    age = max(context, reach // QUARTER)
    probability = config.reset_probability
    if probability is None:
        probability = min(LARGEST_PROBABILITY, round(context / age, 4))
    age = min(age, round(context / probability)) if probability else age
    most = STEPS[0] if probability == 1 else STEPS[-1]  # where nothing is passed on, no number of steps helps
    steps = config.steps or next(
        (steps for steps in STEPS if exposure_share(config, context, steps, probability, age) >= SHARE), most
    )
    share = exposure_share(config, context, steps, probability, age)
    words = (
        f"For a reach of {reach:,} tokens: reset probability {probability:g} and {steps} steps; {share:.0%} of the "
        f"training is expected to be spent on states at least {age:,} tokens old. Price in range: {probability:.1%} of "
        "the rows start from zero, as all did when the model was trained, and the fewer, the more perplexity it costs "
        "within the training length; the table says how much it did. Nothing is promised."
    )
    return Proposal(probability, steps, words)


def exposure_share(config: RepairConfig, context: int, steps: int, probability: float, age: int) -> float:
    """The expected share of the learning-rate-weighted scored tokens whose state is at least ``age`` tokens old."""
    training = TrainingConfig(
        steps=steps, learning_rate=config.learning_rate, learning_rate_floor=min(1e-5, config.learning_rate)
    )
    rates = relative_learning_rates(training)
    (exposed,) = expected_exposure(
        context=context, batch_size=1, learning_rates=rates, reset_probability=probability, ages=[age]
    )
    return exposed / (sum(rates) * context)
