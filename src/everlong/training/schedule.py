"""The learning rate as a function of the step. Free of torch."""

import math

from everlong.training.config import TrainingConfig


def learning_rate(step: int, config: TrainingConfig) -> float:
    """Linear warm-up to the peak, then a cosine that ends at the floor (Loshchilov & Hutter 2017, arXiv 1608.03983).

    With W warm-up steps, step s < W has the share (s + 1) / (W + 1) of the peak, step W the peak, and the floor would
    be reached one step after the last.

    Args:
        step: counted from 0.
        config: peak, floor, warm-up and steps.
    """
    warm_up = round(config.warm_up * config.steps)
    if step < warm_up:
        return config.learning_rate * (step + 1) / (warm_up + 1)
    done = (step - warm_up) / (config.steps - warm_up)
    share = 0.5 * (1 + math.cos(math.pi * done))
    return config.learning_rate_floor + share * (config.learning_rate - config.learning_rate_floor)


def relative_learning_rates(config: TrainingConfig) -> tuple[float, ...]:
    """The learning rate of every step over the peak: the weights of exposure."""
    return tuple(learning_rate(step, config) / config.learning_rate for step in range(config.steps))
