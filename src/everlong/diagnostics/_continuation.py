"""What a state is worth: the loss of reading on from it for a while."""

from collections.abc import Sequence

import numpy as np
import torch
from torch.nn import functional

from everlong.models.language_model import LanguageModel
from everlong.policies._plan import Read
from everlong.reading import Moment, stream
from everlong.state import RecurrentState


def long_and_fresh(documents: int, length: int, positions: Sequence[int], context: int) -> list[tuple[int, Read]]:
    """Reads for a sweep: every document from its beginning, then at each position a fresh window of ``context``."""
    long = [(document, Read(0, length, length)) for document in range(documents)]
    fresh = [
        (document, Read(position - context, position, position))
        for position in positions
        for document in range(documents)
    ]
    return long + fresh


def parted(
    moment: Moment, reads: Sequence[tuple[int, Read]], documents: int
) -> tuple[list[int], RecurrentState, RecurrentState | None]:
    """The batch rows of the long reads, their states, and those of the fresh windows that end here, if there are any.

    All in the order of the documents; the windows of positions to come are in the batch, too, and passed over.
    """
    order = sorted(range(len(moment.reads)), key=lambda row: moment.reads[row])
    long = [row for row in order if moment.reads[row] < documents]
    ending = [row for row in order[documents:] if reads[moment.reads[row]][1].stop == moment.position]
    states = [moment.state.rows(torch.tensor(rows)) if rows else None for rows in (long, ending)]
    assert states[0] is not None
    return long, states[0], states[1]


def losses_after(
    model: LanguageModel, rows: Sequence[np.ndarray], position: int, state: RecurrentState, targets: int
) -> np.ndarray:
    """[documents], mean nats of x[position + 1] .. x[position + targets], read from a state of ``position`` tokens."""
    tokens = torch.from_numpy(np.stack([row[position : position + targets + 1] for row in rows]).astype(np.int64))
    tokens = tokens.to(model.device)
    total, start = torch.zeros(len(rows), dtype=torch.float64, device=model.device), 0
    with torch.no_grad():
        for output in stream(model, tokens[:, :-1], state):
            piece = tokens[:, start + 1 : start + 1 + output.logits.shape[1]]
            nats = functional.cross_entropy(output.logits.float().flatten(0, 1), piece.flatten(), reduction="none")
            total += nats.view(piece.shape).double().sum(1)
            start += piece.shape[1]
    return (total / targets).cpu().numpy()
