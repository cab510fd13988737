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
        context: tokens that a row reads, at most.
        batch_size: rows.
        seed: of the draws.
    """

    data_order = "shuffled"

    def __init__(self, task: Task, *, context: int, batch_size: int, seed: int):
        self._task, self._context, self._batch_size, self._seed = task, context, batch_size, seed
        self.batch(0)  # what does not fit is refused before any work

    def batch(self, step: int) -> Batch:
        """The batch of a step, counted from 0: a function of the seed and the step alone."""
        task, size = self._task, self._batch_size
        length = task.training_length(np.random.default_rng((self._seed, STREAM, step)), self._context)
        rows, answers = [], []
        for index in range(step * size, (step + 1) * size):
            random = np.random.default_rng((self._seed, STREAM + 1, index))
            parameters = task.training_parameters(random, length, index)
            example = task.example(parameters, seed=self._seed, index=index)
            rows.append(np.concatenate([example.prompt, example.answer]))
            answers.append(len(example.answer))
        tokens = torch.from_numpy(np.stack(rows).astype(np.int64))
        inputs = tokens.shape[1] - 1
        return Batch(
            tokens=tokens[:, :-1].contiguous(),
            targets=tokens[:, 1:].contiguous(),
            loss_mask=torch.arange(inputs) >= inputs - torch.tensor(answers).unsqueeze(1),
            starts=torch.ones(size, dtype=torch.bool),
            rows=torch.arange(size),
        )
