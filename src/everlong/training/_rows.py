"""How a process reads its rows of a step, part by part: where they start, what comes of them, what was met."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from everlong.data.batch import Batch, Source
from everlong.interventions._protocol import Intervention
from everlong.interventions.exposure import ExposureCounter, token_ages
from everlong.rows import as_read, cross_entropy, read
from everlong.state import RecurrentState
from everlong.training.parallel import TrainedModel
from everlong.training.processes import Processes

LARGE = math.sqrt(torch.finfo(torch.float32).max)
"""What has no square in float32."""


@dataclass(frozen=True)
class StepRead:
    """What a process found in its rows of a step.

    Attributes:
        loss: its share of the batch's loss, without a graph.
        squares: [leaves], the sum of squares of each leaf of its final states, in float64.
        counts: tokens read; the sum of the ages that rows are scored from; rows that start from zero where the method
            would not; then scored tokens by age, as exposure counts them.
    """

    loss: Float[Tensor, ""]
    squares: Float64[Tensor, " L"]
    counts: Int[Tensor, " C"]


@dataclass(frozen=True)
class Rows:
    """The rows of every step that are this process's.

    Attributes:
        trained: the model.
        source: of the batches.
        intervention: decides what state each row starts from.
        processes: among which the batch is shared.
        parts: this process's rows of a batch, as they are read one after the other.
        exposure: counts what is met.
    """

    trained: TrainedModel
    source: Source
    intervention: Intervention
    processes: Processes
    parts: list[range]
    exposure: ExposureCounter

    def batches(self, step: int) -> tuple[list[Batch], int]:
        """This process's rows of a step of the data, part by part, and how many targets the whole batch scores."""

        def own() -> list[Batch]:
            return [as_read(self.source.batch(step, rows), self.intervention, step) for rows in self.parts]

        parts = self.processes.together(own)
        return parts, int(self.processes.sum(torch.tensor(sum(part.scored_tokens for part in parts))))

    def prefill(self, step: int) -> tuple[int, list[float]]:
        """Reads the rows of a step of the data for their final states alone.

        Returns:
            The tokens, and the sum of squares of each leaf of the final states, of all processes.
        """
        counts = torch.zeros(1 + len(self.trained.spec.leaves), dtype=torch.float64)
        for part in self.batches(step)[0]:
            here, initial, met = self._start(part, step)
            with torch.no_grad():
                output = read(self.trained, here, initial, self.intervention)
            self._observe(output.state, met)
            counts += torch.cat([torch.tensor([float(met.size)]), _squares(output.state).cpu()])
        tokens, *squares = self.processes.sum(counts).tolist()
        return int(tokens), squares

    def at_fault(self, step: int) -> Int[Tensor, " N"]:
        """The rows of the whole batch whose initial state is at fault, in a step that is not finite.

        Read from it they are not finite, from zero they are; or it is so large that its square overflows, from which a
        gradient may not be finite where the row is. Reads the step's rows twice more, without a gradient; what the
        intervention keeps is as before the step, and is to be given back to it afterwards.
        """
        found = torch.zeros(self.source.batch_size)
        for part in self.batches(step)[0]:
            here, initial, _ = self._start(part, step)
            zero = self.trained.spec.zeros(len(part.rows), self.trained.device)
            large = _any_by_row([leaf.abs() > LARGE for leaf in initial.leaves])
            found[part.rows] = (large | self._wrong(here, initial) & ~self._wrong(here, zero)).to(found)
        return self.processes.sum(found).nonzero().squeeze(1)

    def _wrong(self, part: Batch, initial: RecurrentState) -> Bool[Tensor, " B"]:
        """The rows that are not finite once they are read."""
        with torch.no_grad():
            output = read(self.trained, part, initial, self.intervention)
        tensors = (output.logits, *output.state.leaves)
        return _any_by_row([~torch.isfinite(tensor) for tensor in tensors])

    def read(self, parts: list[Batch], targets: int, step: int) -> StepRead:
        """Reads the rows of a step of the data, and leaves the gradient of the batch's loss in the parameters."""
        spec, prefix = self.trained.spec, self.intervention.unscored_prefix
        wide = torch.promote_types(self.trained.dtype, torch.float32)
        loss = torch.zeros((), device=self.trained.device, dtype=wide)
        squares = torch.zeros(len(spec.leaves), device=self.trained.device, dtype=torch.float64)
        counts = torch.zeros(3 + len(self.exposure.ages), dtype=torch.int64)
        for part in parts:
            here, initial, met = self._start(part, step)
            with self.trained.gradients(last=part is parts[-1]):
                output = read(self.trained, here, initial, self.intervention)
                nats = cross_entropy(output.logits, output.targets, output.scored) / targets
                (nats * self.processes.count).backward()  # of which the mean over the processes is taken
            loss += nats.detach()
            squares += _squares(output.state)
            self._observe(output.state, met)
            exposed = self.exposure.count(met, None if part.loss_mask is None else part.loss_mask.numpy())
            counts += torch.tensor([met.size, met[:, prefix].sum(), self.intervention.zero_starts(), *exposed])
        return StepRead(loss, squares, counts)

    def _start(self, part: Batch, step: int) -> tuple[Batch, RecurrentState, Int[np.ndarray, "B T"]]:
        """The rows where the model is, the states they start from, and the age of the state that each token meets."""
        here = part.to(self.trained.device)
        initial = self.intervention.initial_state(here.starts, self.trained.spec, step, part.rows)
        resets = None if part.resets is None else part.resets.numpy()
        return here, initial, token_ages(self.intervention.ages(part.rows).numpy(), part.tokens.shape[1], resets)

    def _observe(self, final_state: RecurrentState, met: Int[np.ndarray, "B T"]) -> None:
        self.intervention.observe(final_state, torch.from_numpy(met[:, -1] + 1))


def _squares(state: RecurrentState) -> Float64[Tensor, " L"]:
    """The sum of squares of each leaf; in float64, which holds the square of any finite state."""
    return torch.stack([_norm(leaf.detach()) for leaf in state.leaves]).square()


def _norm(leaf: Tensor) -> Float64[Tensor, ""]:
    """Of a leaf. Float32 has no room for a large one's; float64 takes long on a CPU, hence only where it must be."""
    if leaf.device.type == "cpu":
        norm = torch.linalg.vector_norm(leaf, dtype=torch.promote_types(leaf.dtype, torch.float32)).double()
        if norm.isfinite():
            return norm
    return torch.linalg.vector_norm(leaf, dtype=torch.float64)


def _any_by_row(flags: Sequence[Bool[Tensor, "B ..."]]) -> Bool[Tensor, " B"]:
    """Whether anything is true in a row of any of the tensors."""
    return torch.stack([flag.flatten(1).any(1) for flag in flags]).any(0)
