"""Position-wise loss and perplexity on a fixed panel, and the paper's Def. 3.2.

PPL(t) = exp(mean over documents of -log q(x_t | x_0 .. x_{t-1})): the losses at a position are averaged over documents,
then exponentiated; never a mean of perplexities. A panel is fixed: all its documents are as long as the length, so that
no position is read from easier documents than another.
"""

import numpy as np

from everlong.diagnostics._intervals import simultaneous_intervals
from everlong.diagnostics.buckets import Buckets
from everlong.records.diagnosis import Curve


def position_curve(policy: str, losses: np.ndarray, buckets: Buckets) -> Curve:
    """Averages losses [documents, positions 1 .. L] over the positions of each bucket."""
    means = [losses[:, start:stop].mean(axis=1) for start, stop in buckets]
    return Curve(
        policy=policy,
        starts=tuple(start for start, _ in buckets),
        stops=tuple(stop for _, stop in buckets),
        losses=np.stack(means, axis=1) if len(losses) else np.zeros((0, len(buckets))),
    )


def definition_3_2(octaves: Curve, *, context: int, tolerance: float, confidence: float, seed: int) -> str:
    """Does PPL(t) stay at or below p*, the best PPL within the training range, for every t from t* on (Def. 3.2)?

    A minimum over noise is biased low, so t* is chosen on one half of the documents and tested on the other; the losses
    of one document at t and at t* are compared as pairs, with simultaneous intervals and the tolerance in nats.
    Positions are taken by octaves, none too narrow: single positions of a few documents are noise.
    """
    documents = len(octaves.losses)
    if documents < 8:
        return f"Not judged: {documents} documents are as long as the length, 8 are needed."
    choosing, testing = octaves.losses[::2], octaves.losses[1::2]
    stops = np.array(octaves.stops)
    in_range = stops <= context
    best = int(np.argmin(np.where(in_range, choosing.mean(axis=0), np.inf)))
    later = np.arange(len(stops)) > best
    gaps = simultaneous_intervals(testing[:, later] - testing[:, [best]], confidence=confidence, seed=seed)
    above = gaps.lower > tolerance
    p_star = float(np.exp(testing[:, best].mean()))
    where = f"p* = {p_star:.2f} at t* = {stops[best]:,}, chosen on {len(choosing)} documents, tested on {len(testing)}"
    if above.any():
        at = int(np.array(octaves.starts)[later][np.argmax(above)])
        return f"Exceeds p* from {at:,} tokens on ({where})."
    if (gaps.upper <= tolerance).all():
        return f"Generalises to {stops[-1]:,} tokens ({where})."
    return f"Undecided: no position is surely above p* nor all surely at or below ({where})."
