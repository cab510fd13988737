"""Records of a training: what one arm did, and how often it met old states."""

from dataclasses import dataclass, field
from typing import Any

from everlong.records._record import Record


@dataclass(frozen=True, kw_only=True)
class Exposure(Record):
    """How often training met old states: scored tokens by age, each weighted by its learning rate over the peak's."""

    ages: tuple[int, ...]
    """Tokens since the state was zero."""
    tokens: tuple[float, ...]
    """For each age, weighted tokens at least so old."""
    scored_tokens: int
    """All scored tokens, unweighted."""


@dataclass(frozen=True, kw_only=True)
class Training(Record):
    """What one arm of training did."""

    method: str
    context: int
    """Tokens a row, without a prefix that is read without loss."""
    settings: dict[str, Any]
    """Of training and of its intervention, and data_order, in which the rows came."""
    steps: int
    scored_tokens: int
    read_tokens: int
    first_loss: float
    final_loss: float
    """Means of the first and last tenth of the steps."""
    exposure: Exposure
    backend: str
    seconds: float
    model_folder: str
    skipped_steps: int = 0
    """Steps left out because something in them was not finite."""
    zeroed_rows: int = 0
    """Rows that started from zero after such a step, or batch of a prefill, for what they carried was at fault."""
    zero_starts: int | None = None
    """Rows that started from zero where the method would not: by its reset probability, and where documents begin.
    None: a run from before they were counted."""
    processes: int = 1
    """That shared the work at its end."""
    documents_left_out: int | None = None
    """Documents of the training text of which no row reads anything, for they are too short; None: not of text, or
    a run from before they were counted."""
    tokens_left_out: int | None = None
    """Tokens of the training text that no row reads or predicts: those of these documents, and ends of others."""
    intervention: dict[str, Any] = field(default_factory=dict)
    """What the intervention did, in numbers: of the last step where they change from step to step."""
