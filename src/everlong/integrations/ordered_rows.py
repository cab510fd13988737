"""Everlong's data orders as data sets for the transformers Trainer."""

import torch
from torch import Tensor
from torch.utils.data import Dataset

from everlong.data.batch import Source
from everlong.integrations._columns import UNSCORED


class OrderedRows(Dataset):
    """The rows of a data order (``everlong.data.orders``), to be read one after another.

    Give ``train_sampling_strategy="sequential"``: the order is the data order's own.

    Args:
        order: of all rows of an optimizer step, over all processes and parts.
        steps: optimizer steps that there are rows for.

    Attributes:
        data_order: what the order is called, which ``StatefulTrainer`` compares with what the intervention needs.
        rows_per_step: rows of a step, which it compares with what the processes read.
    """

    def __init__(self, order: Source, *, steps: int):
        self._order, self._steps = order, steps
        self.data_order, self.rows_per_step = order.data_order, order.batch_size

    def __len__(self) -> int:
        return self._steps * self.rows_per_step

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        step, row = divmod(index, self.rows_per_step)
        batch = self._order.batch(step, range(row, row + 1))
        targets = batch.targets if batch.loss_mask is None else batch.targets.masked_fill(~batch.loss_mask, UNSCORED)
        resets = torch.zeros_like(batch.tokens, dtype=torch.bool) if batch.resets is None else batch.resets
        columns = {"input_ids": batch.tokens, "shift_labels": targets, "starts": batch.starts, "resets": resets}
        return {name: column[0] for name, column in columns.items()}
