"""The columns of the transformers Trainer's batches, checked and made a ``Batch``."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from everlong.data.batch import Batch
from everlong.errors import EverlongError

COLUMNS = ("input_ids", "labels", "shift_labels", "starts", "resets", "attention_mask")
UNSCORED = -100


def batch_of(columns: Mapping[str, Any]) -> Batch:
    """The batch that columns hold, where they are; its ``rows`` are numbered from 0, on the CPU.

    Raises:
        EverlongError: a column is missing or of another shape, there are no labels or labels of two kinds, or the rows
            are padded.
    """
    tokens = columns.get("input_ids")
    if not isinstance(tokens, Tensor) or tokens.ndim != 2:
        found = ", ".join(columns) or "none"
        raise EverlongError(f"a batch has no input_ids of shape [B, T] (its columns: {found}): the rows need them")
    mask = columns.get("attention_mask")
    if mask is not None and not bool((mask != 0).all()):
        raise EverlongError(
            "a batch has padded rows (zeros in attention_mask), whose final states would be those after the padding: "
            "give rows of one length, cut from longer texts or packed with `resets`"
        )
    starts, resets = columns.get("starts"), columns.get("resets")
    if starts is None:
        starts = torch.zeros_like(tokens[:, 0], dtype=torch.bool)
    starts = _of_shape("starts", starts, tokens.shape[:1]).bool()
    if resets is not None:
        resets = _of_shape("resets", resets, tokens.shape).bool().clone()
        starts = starts | resets[:, 0]
        resets[:, 0] = False  # what a row starts from is the intervention's affair
    targets = _targets(columns, tokens, resets)
    scored = targets.ne(UNSCORED)
    return Batch(
        tokens=tokens,
        targets=targets.masked_fill(~scored, 0),
        loss_mask=scored,
        starts=starts,
        resets=resets,
        rows=torch.arange(len(tokens)),
    )


def _targets(columns: Mapping[str, Any], tokens: Tensor, resets: Tensor | None) -> Tensor:
    given = [name for name in ("labels", "shift_labels") if columns.get(name) is not None]
    if len(given) != 1:
        raise EverlongError(
            f"a batch has {' and '.join(given) or 'no labels'}: give labels (input_ids again, {UNSCORED} where not "
            "scored), or shift_labels (the token after each of input_ids), one of the two"
        )
    labels = _of_shape(given[0], columns[given[0]], tokens.shape)
    if given[0] == "shift_labels":
        return labels
    targets = F.pad(labels[:, 1:], (0, 1), value=UNSCORED)
    if resets is not None:  # the last token of a document does not predict the next document
        targets[:, :-1].masked_fill_(resets[:, 1:], UNSCORED)
    return targets


def _of_shape(name: str, column: Tensor, shape: Sequence[int]) -> Tensor:
    if list(column.shape) != list(shape):
        raise EverlongError(f"{name} of a batch has shape {list(column.shape)}, input_ids need {list(shape)}")
    return column
