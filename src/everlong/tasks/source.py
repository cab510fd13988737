"""Batches of a task's training examples, for the one training loop: fine-tuning differs in this alone."""

import numpy as np
import torch

from everlong.data.batch import Batch
from everlong.tasks._task import Example, Task

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
        prefix: tokens before each example, from the ends of others of its length: an example begins its document, so
            what a method reads before it is unrelated to it, as a state that is passed on is.

    Raises:
        EverlongError: the length is too short for any example that may be drawn.
    """

    data_order = "shuffled"

    def __init__(self, task: Task, *, length: int, batch_size: int, seed: int, prefix: int = 0):
        self.length, self.batch_size = length, batch_size
        self._task, self._seed, self._prefix = task, seed, prefix
        self.batch(0)  # what cannot be made, and what does not fit, is refused before any work
        for parameters in task.training_cells(task.training_length(np.random.default_rng(seed), length - prefix)):
            task.check_fits(parameters)

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """The batch of a step, counted from 0, or only some of its rows; a function of the seed and the step alone."""
        task, wanted = self._task, range(self.batch_size) if rows is None else rows
        room = self.length - self._prefix
        length = task.training_length(np.random.default_rng((self._seed, STREAM, step)), room)
        examples, answers = [], []
        for row in wanted:
            index = step * self.batch_size + row
            example = self._example(np.random.default_rng((self._seed, STREAM + 1, index)), length, index)
            examples.append(np.concatenate([self._before(length, index), example.prompt, example.answer]))
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

    def _example(self, random: np.random.Generator, length: int, index: int) -> Example:
        parameters = self._task.training_parameters(random, length, index)
        return self._task.example(parameters, seed=self._seed, index=index)

    def _before(self, length: int, index: int) -> np.ndarray:
        """[prefix]: the end of other examples of this length, drawn."""
        if not self._prefix:
            return np.empty(0, np.int32)
        random = np.random.default_rng((self._seed, STREAM + 2, index))
        parts: list[np.ndarray] = []
        while sum(map(len, parts)) < self._prefix:
            example = self._example(random, length, int(random.integers(1 << 31)))
            parts += [example.prompt, example.answer]
        return np.concatenate(parts)[-self._prefix :]
