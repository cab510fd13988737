"""What a run counted and measured so far; it survives a resume."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from everlong.interventions.exposure import ExposureCounter


class History:
    """Losses, tokens, exposure and seconds of a phase, over all the processes that worked on it.

    Args:
        context: tokens a row.
        steps: of the whole phase.
        prefill_steps: before it.
    """

    def __init__(self, *, context: int, steps: int, prefill_steps: int = 0):
        self.exposure = ExposureCounter(context=context, steps=prefill_steps + steps)
        self.read_tokens = self.skipped_steps = self.skipped_in_a_row = self.zeroed_rows = self.zero_starts = 0
        self._losses: list[float] = []
        self._seconds, self._began = 0.0, time.monotonic()

    def add(self, loss: float, tokens: int, zero_starts: int, exposed: Sequence[int], learning_rate: float) -> None:
        """Counts one step: loss, tokens read, rows that started anew, and tokens scored by the age of their state."""
        self._losses.append(loss)
        self.read_tokens += tokens
        self.skipped_in_a_row = 0
        self.zero_starts += zero_starts
        self.exposure.add(exposed, learning_rate)

    def skip(self, tokens: int) -> None:
        """Counts a step that was read and then left out, for something in it was not finite."""
        self.read_tokens += tokens
        self.skipped_steps += 1
        self.skipped_in_a_row += 1

    def prefill(self, tokens: int) -> None:
        """Counts rows that were read before the first step, to carry their states."""
        self.read_tokens += tokens

    @property
    def seconds(self) -> float:
        """Spent on this phase, earlier processes included."""
        return self._seconds + time.monotonic() - self._began

    @property
    def first_loss(self) -> float:
        """Mean loss of the first tenth of the steps so far."""
        return _mean(self._losses[: self._tenth])

    @property
    def final_loss(self) -> float:
        """Mean loss of the last tenth of the steps so far."""
        return _mean(self._losses[-self._tenth :])

    @property
    def _tenth(self) -> int:
        return max(1, len(self._losses) // 10)

    def state_dict(self) -> dict[str, Any]:
        """What a resume needs."""
        return {
            "losses": torch.tensor(self._losses, dtype=torch.float64),
            "read_tokens": self.read_tokens,
            "skipped_steps": self.skipped_steps,
            "skipped_in_a_row": self.skipped_in_a_row,
            "zeroed_rows": self.zeroed_rows,
            "zero_starts": self.zero_starts,
            "seconds": self.seconds,
            **self.exposure.state_dict(),
        }

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Goes on from where ``state_dict`` was taken."""
        self._losses = values["losses"].tolist()
        self.read_tokens, self.skipped_steps = values["read_tokens"], values["skipped_steps"]
        self.skipped_in_a_row, self.zeroed_rows = values.get("skipped_in_a_row", 0), values.get("zeroed_rows", 0)
        self.zero_starts = values.get("zero_starts", 0)
        self._seconds, self._began = values["seconds"], time.monotonic()
        self.exposure.load_state_dict(values)


def _mean(losses: Sequence[float]) -> float:
    return sum(losses) / len(losses)
