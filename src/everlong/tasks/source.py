"""Batches of a task's training examples, for the one training loop: fine-tuning differs in this alone."""

import numpy as np
import torch

from everlong.data.batch import Batch
from everlong.tasks._task import Task

STREAM = 0x7461_736B  # keeps these draws apart from those of the examples themselves


class TaskSource:
    """Rows are examples, each a document of its own; the loss counts their answers alone.

    All rows of a batch have one length, so none is padded, and the state that a row ends with is that after the last
    token which it reads itself: its last but one, for the last is only a target.

    Args:
        task: made for training.
        length: tokens that a row reads, at most.
        batch_size: rows.
        seed: of the draws.
    """

    data_order = "shuffled"

    def __init__(self, task: Task, *, length: int, batch_size: int, seed: int):
        self.length, self.batch_size = length, batch_size
        self._task, self._seed = task, seed
        self.batch(0)  # what does not fit is refused before any work

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """The batch of a step, counted from 0, or only some of its rows; a function of the seed and the step alone."""
        task, wanted = self._task, range(self.batch_size) if rows is None else rows
        length = task.training_length(np.random.default_rng((self._seed, STREAM, step)), self.length)
        examples, answers = [], []
        for row in wanted:
            index = step * self.batch_size + row
            random = np.random.default_rng((self._seed, STREAM + 1, index))
            parameters = task.training_parameters(random, length, index)
            example = task.example(parameters, seed=self._seed, index=index)
            examples.append(np.concatenate([example.prompt, example.answer]))
            answers.append(len(example.answer))
        tokens = torch.from_numpy(np.stack(examples).astype(np.int64))
        inputs = tokens.shape[1] - 1
        return Batch(
            tokens=tokens[:, :-1].contiguous(),
            targets=tokens[:, 1:].contiguous(),
            loss_mask=torch.arange(inputs) >= inputs - torch.tensor(answers).unsqueeze(1),
            starts=torch.ones(len(wanted), dtype=torch.bool),
            rows=torch.arange(wanted.start, wanted.stop),
        )
