"""The places of rows in an optimizer step of the transformers Trainer, and whether streams go on in them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from everlong.data.batch import Batch
from everlong.errors import EverlongError
from everlong.integrations._columns import UNSCORED, batch_of


class Places:
    """Numbers the rows of a step part by part, in each part process by process: in the order of the data set.

    Args:
        size: rows of a part on each process.
        parts: parts of a step (its gradient accumulation).
        processes: how many there are.
        rank: which one this is.
        method: an intervention that needs contiguous streams, by name; None: it needs none.

    Attributes:
        count: rows of a step, of all processes.
        own: the places of this process's rows.
        following: by place, the token that follows where the row ended last; -100 where this process does not know it.
    """

    def __init__(self, *, size: int, parts: int, processes: int, rank: int, method: str | None):
        self._method = method
        self.count = size * parts * processes
        self._of_parts = torch.arange(self.count).view(parts, processes, size)[:, rank]
        self.own = self._of_parts.flatten()
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forgets what was read."""
        self._step, self._part = -1, 0  # the step that is being read, and the parts of it that were
        self.following: Int[Tensor, " R"] = torch.full((self.count,), UNSCORED)

    def next(self, step: int, columns: Mapping[str, Any]) -> Batch:
        """The batch of a step's next part, its rows in their places.

        Raises:
            EverlongError: there are fewer or more rows than in every part, a stream does not go on, or the columns do
                not hold a batch.
        """
        batch = batch_of(columns)
        if step != self._step:
            self._step, self._part = step, 0
        places = self._of_parts[self._part]
        self._part += 1
        if len(batch.tokens) != len(places):
            raise EverlongError(
                f"a batch of step {step} has {len(batch.tokens)} rows, every one needs {len(places)}: give "
                "dataloader_drop_last=True, and no data set whose batches change"
            )
        batch = replace(batch, rows=places)
        if self._method:
            if columns.get("starts") is None and columns.get("resets") is None:
                raise EverlongError(
                    f"the method {self._method} starts documents from zero: give `starts` (or `resets`), True for rows "
                    "that begin a document"
                )
            self._check_streams(batch)
        return batch

    def _check_streams(self, batch: Batch) -> None:
        """Whether rows go on where those in their places ended, as far as the targets tell."""
        following, begins = self.following[batch.rows], batch.tokens[:, 0].cpu()
        torn = following.ne(UNSCORED) & following.ne(begins) & ~batch.starts.cpu()
        if torn.any():
            row = int(torn.nonzero()[0])
            raise EverlongError(
                f"row {int(batch.rows[row])} of step {self._step} begins with token {int(begins[row])}, but token "
                f"{int(following[row])} follows the row in its place in the step before, and no document starts there: "
                f"item i + {self.count} of the data must go on where item i ends"
            )
        assert batch.loss_mask is not None  # ``batch_of`` gives one
        ends = batch.targets[:, -1].masked_fill(~batch.loss_mask[:, -1], UNSCORED)
        self.following = self.following.index_copy(0, batch.rows, ends.cpu())
