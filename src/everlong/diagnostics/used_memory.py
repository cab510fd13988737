"""How much context a model really uses: the shortest window that is as good as the whole document.

A model that merely forgets holds at any length; its used memory says so. Windows start from the zero state and only
their last eighth is scored, so a target of a window of W sees between W - W/8 + 1 and W tokens.
"""

import numpy as np

from everlong.diagnostics._estimates import estimate
from everlong.diagnostics._examination import Examination
from everlong.diagnostics._panel import Span
from everlong.diagnostics.config import MeasuresConfig
from everlong.policies.carry import Carry
from everlong.policies.window import Window
from everlong.reading import losses, tokens_to_read
from everlong.records.measurements import Estimate, UsedMemory

SHARE = 8
WIDEST = 8  # training lengths


def used_memory(examination: Examination, config: MeasuresConfig) -> UsedMemory:
    """Reads targets of the second half of the length under every window and in full; see the module."""
    rows, context = examination.full_rows, examination.context
    widths = window_widths(context, examination.length)
    spans = _spans(len(rows), examination, config.memory_targets)
    policies = [Carry(), *(Window(width, SHARE) for width in widths)]
    with examination.work("used memory", sum(tokens_to_read(policy, spans) for policy in policies)) as work:
        found = [losses(examination.model, rows, policy, spans, advance=work.advance) for policy in policies]
    table = np.stack([_by_document(nats, spans, len(rows)) for nats in found], axis=1)
    full, windows = table[:, 0], table[:, 1:]

    def sure(values: np.ndarray) -> Estimate:
        return estimate(values, confidence=examination.confidence, seed=examination.seed)

    over_full = sure(windows - full[:, None])
    means, tolerance = windows.mean(axis=0), examination.tolerance
    within = [width for width, upper in zip(widths, over_full.upper, strict=True) if upper <= tolerance]
    best = int(np.argmin(means))
    harms = bool(over_full.upper[best] < -tolerance)
    longer = np.concatenate([windows[:, np.array(widths) > context], full[:, None]], axis=1)
    headroom = sure((windows[:, widths.index(context)] - longer[:, np.argmin(longer.mean(axis=0))])[:, None])
    used_of_best = next(width for width, mean in zip(widths, means, strict=True) if mean <= means[best] + tolerance)
    return UsedMemory(
        basis=examination.basis(work, full_only=True),
        widths=widths,
        window_share=SHARE,
        targets=np.bincount([document for document, _, _ in spans], [last - first + 1 for _, first, last in spans]),
        window_losses=windows,
        full_losses=full,
        over_full=over_full,
        used=None if harms or not within else within[0],
        best_width=widths[best],
        used_of_best=used_of_best,
        headroom=headroom,
        sentence=_sentence(widths, within, harms, over_full, headroom, tolerance),
    )


def window_widths(context: int, length: int) -> tuple[int, ...]:
    """T, its halves down to one token, and its doubles up to eight times, as far as half the length allows."""
    shorter = [context >> halvings for halvings in range(context.bit_length())]
    longer = [context * 2**k for k in range(1, WIDEST.bit_length()) if context * 2**k <= length // 2]
    return tuple(sorted({*shorter, *longer}))


def _spans(documents: int, examination: Examination, targets: int) -> list[Span]:
    """Blocks of at most T targets in the second half of the length, drawn without replacement in each document."""
    half, length = examination.length // 2, examination.length
    block = max(1, min(examination.context, targets, length - half))
    firsts = np.arange(half + 1, length - block + 2, block)
    spans = []
    for document in range(documents):
        drawn = np.random.default_rng([examination.seed, 3, document]).permutation(firsts)[: max(1, targets // block)]
        spans += [(document, int(first), int(first) + block - 1) for first in sorted(drawn)]
    return spans


def _by_document(found: list[np.ndarray], spans: list[Span], documents: int) -> np.ndarray:
    owners = [document for document, _, _ in spans]
    sums = np.bincount(owners, [nats.sum(dtype=np.float64) for nats in found], minlength=documents)
    return sums / np.bincount(owners, [len(nats) for nats in found], minlength=documents)


def _sentence(
    widths: tuple[int, ...],
    within: list[int],
    harms: bool,
    over_full: Estimate,
    headroom: Estimate,
    tolerance: float,
) -> str:
    if harms:
        best = int(np.argmin(over_full.mean))
        used = (
            f"The full context is worse than a window of {widths[best]:,} tokens by {-over_full.mean[best]:.3f} nats: "
            "what is read beyond harms, and says nothing of memory"
        )
    elif within:
        tokens = "1 token" if within[0] == 1 else f"{within[0]:,} tokens"
        used = f"The model uses {tokens}: so long a window is surely within {tolerance:g} nats of the full one"
    else:
        used = f"No window up to {widths[-1]:,} tokens is surely within {tolerance:g} nats of the full context"
    return f"{used}; the best longer context gains {headroom.mean[0]:+.3f} nats over the window of the training length."
