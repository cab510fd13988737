"""Exposure: how often training met old states. Free of torch.

exposure(t) is the number of scored tokens whose state is at least t tokens old, each weighted by the learning rate of
its step over the peak. Where a row starts from a state of age a, its token i, counted from 0, meets one of age a + i.
Excess loss after a repair falls smoothly with exposure; there is no reach beyond which it ends.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from everlong.errors import EverlongError
from everlong.records.training import Exposure


def age_grid(*, context: int, steps: int) -> tuple[int, ...]:
    """Zero, then the context times the powers of two, up to the oldest state that ``steps`` rows in a chain meet."""
    powers = range(max(steps - 1, 0).bit_length())  # the oldest state is steps * context - 1 tokens old
    return (0, *(context << power for power in powers))


def expected_exposure(
    *,
    context: int,
    batch_size: int,
    learning_rates: Sequence[float],
    reset_probability: float,
    ages: Sequence[int],
) -> tuple[float, ...]:
    """The expectation over the draws of state passing, in closed form.

    At step s a slot's state has been passed on k times, P(k >= j) = (1 - p)^j for j <= s, else 0. With t = mT + r,
    r < T, the T - r last tokens of a row are at least t old if k >= m, the others if k >= m + 1. Hence, with W(j) the
    sum of the weights of the steps from j on,

        exposure(t) = B ((T - r) (1 - p)^m W(m) + r (1 - p)^(m + 1) W(m + 1))

    Args:
        context: T, tokens a row, all scored.
        batch_size: B, rows.
        learning_rates: of each step, over the peak.
        reset_probability: p; 1 is the zero control.
        ages: where exposure is wanted, in tokens.
    """
    if not 0 <= reset_probability <= 1:
        raise EverlongError(f"reset_probability is {reset_probability}; it must lie between 0 and 1")
    weights = np.append(np.cumsum(np.asarray(learning_rates, dtype=np.float64)[::-1])[::-1], 0.0)
    last = len(weights) - 1
    whole, rest = np.divmod(np.asarray(ages, dtype=np.int64), context)

    def tail(passed: np.ndarray) -> np.ndarray:
        return (1.0 - reset_probability) ** passed * weights[np.minimum(passed, last)]

    expected = batch_size * ((context - rest) * tail(whole) + rest * tail(whole + 1))
    return tuple(float(value) for value in expected)


def token_ages(
    ages: Int[np.ndarray, " B"], length: int, resets: Bool[np.ndarray, "B T"] | None = None
) -> Int[np.ndarray, "B T"]:
    """The age of the state that each token of a row meets.

    Args:
        ages: at the start of each row.
        length: T, tokens a row.
        resets: True at tokens that start from zero inside a row.
    """
    positions = np.arange(length)
    if resets is None:
        return ages[:, None] + positions
    begun = np.maximum.accumulate(np.where(resets, positions, -1), axis=1)
    return np.where(begun >= 0, positions - begun, ages[:, None] + positions)


class ExposureCounter:
    """Counts the exposure of a run, step by step, at the ages of ``age_grid``.

    Args:
        context: tokens a row.
        steps: of the whole run.

    Attributes:
        ages: the grid.
    """

    def __init__(self, *, context: int, steps: int):
        self.ages = age_grid(context=context, steps=steps)
        self._tokens = [0.0] * len(self.ages)
        self._scored_tokens = 0

    def count(
        self, ages: Int[np.ndarray, "B T"], scored: Bool[np.ndarray, "B T"] | None = None
    ) -> Int[np.ndarray, " N"]:
        """How many scored tokens of some rows meet a state at least so old, for each age of the grid.

        Args:
            ages: the age of the state that each token meets.
            scored: True where the loss counts; None: everywhere.
        """
        counted = ages.ravel() if scored is None else ages[scored]
        counts = np.zeros(len(self.ages), dtype=np.int64)
        oldest = counted.max(initial=-1)
        for index, age in enumerate(self.ages):
            if age > oldest:
                break
            counts[index] = np.count_nonzero(counted >= age)
        return counts

    def add(self, counts: Sequence[int], learning_rate: float) -> None:
        """Adds one step.

        Args:
            counts: those of all its rows, over all processes.
            learning_rate: over the peak.
        """
        self._scored_tokens += counts[0]  # those of age 0 and more
        self._tokens = [tokens + learning_rate * count for tokens, count in zip(self._tokens, counts, strict=True)]

    @property
    def scored_tokens(self) -> int:
        """All scored tokens so far, unweighted."""
        return self._scored_tokens

    def record(self) -> Exposure:
        """What was counted so far."""
        return Exposure(ages=self.ages, tokens=tuple(self._tokens), scored_tokens=self._scored_tokens)

    def state_dict(self) -> dict[str, Any]:
        """What a resume needs: numbers by name, to the bit."""
        weighted = {f"tokens.{age}": tokens for age, tokens in zip(self.ages, self._tokens, strict=True)}
        return {"scored_tokens": self._scored_tokens, **weighted}

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Goes on from where ``state_dict`` was taken."""
        self._tokens = [float(values[f"tokens.{age}"]) for age in self.ages]
        self._scored_tokens = int(values["scored_tokens"])
