"""What one training step reads, and where it comes from."""

from dataclasses import dataclass, fields, replace
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class Batch:
    """Rows of tokens, each with what follows them.

    Attributes:
        tokens: the inputs, int64.
        targets: the token after each input, in the same document, int64.
        loss_mask: True where the loss counts; None: everywhere.
        starts: True for a row that begins at its document's first token.
        resets: True where a document begins inside a row, whose state is zero there; what it is at the beginning of a
            row, ``starts`` helps the intervention to decide. None: no document begins inside a row.
        rows: each row's place in the whole batch, 0 to B - 1, which seeds what is drawn for it on any number of ranks.
    """

    tokens: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]
    loss_mask: Bool[Tensor, "B T"] | None = None
    starts: Bool[Tensor, " B"]
    resets: Bool[Tensor, "B T"] | None = None
    rows: Int[Tensor, " B"]

    @property
    def scored_tokens(self) -> int:
        """How many targets the loss counts."""
        return self.targets.numel() if self.loss_mask is None else int(self.loss_mask.sum())

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: value.to(device) for name, value in values.items() if value is not None})

    def part(self, rows: slice) -> "Batch":
        """Some of the rows; they keep their places in the whole batch."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: value[rows] for name, value in values.items() if value is not None})


@runtime_checkable
class Source(Protocol):
    """Where batches come from, the same on every process: each process asks for its own rows of a batch alone.

    Attributes:
        data_order: what an intervention may need.
        length: tokens of a row, at most.
        batch_size: rows of a batch, over all processes.
    """

    data_order: str
    length: int
    batch_size: int

    def batch(self, step: int, rows: range | None = None) -> Batch:
        """The batch of a step, counted from 0, or only some of its rows; a function of the seed and the step alone."""
        ...


@runtime_checkable
class TextSource(Source, Protocol):
    """Batches of the documents of a corpus: a data order.

    Attributes:
        documents_left_out: documents of which no row reads anything.
        tokens_left_out: tokens that no row reads or predicts.
    """

    documents_left_out: int
    tokens_left_out: int
