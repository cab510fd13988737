"""The held-out rows that a diagnosis reads, and the targets that it reads anew under every window."""

from dataclasses import dataclass

import numpy as np

from everlong.data.corpus import Corpus
from everlong.diagnostics.buckets import Buckets
from everlong.errors import EverlongError

Span = tuple[int, int, int]  # document, first and last target


@dataclass(frozen=True)
class Panel:
    """Rows to read.

    Attributes:
        names: of the documents; several rows never come from one document.
        rows: tokens, at most length + 1 each.
        offsets: where in its document each row starts.
    """

    names: tuple[str, ...]
    rows: tuple[np.ndarray, ...]
    offsets: tuple[int, ...]

    def full(self, length: int) -> list[int]:
        """Rows that are as long as the length: the fixed panel of the curves."""
        return [index for index, row in enumerate(self.rows) if len(row) == length + 1]


def select_panel(corpus: Corpus, *, context: int, length: int, documents: int, seed: int) -> Panel:
    """Chooses the rows to read.

    Documents longer than the length come first, each from a random offset; then the longest others, from their
    start. Documents no longer than the training context contribute none.

    Raises:
        EverlongError: no document is longer than the training context.
    """
    generator = np.random.default_rng([seed, 0])
    long = [d for d in corpus.documents if len(d.tokens) > length]
    short = sorted((d for d in corpus.documents if context < len(d.tokens) <= length), key=lambda d: -len(d.tokens))
    if not long and not short:
        longest = max((len(d.tokens) for d in corpus.documents), default=0)
        raise EverlongError(
            f"no held-out document is longer than the training context of {context} tokens "
            f"(the longest has {longest}); give longer documents, "
            "or a smaller --context if the model was trained at one"
        )
    chosen = [long[i] for i in sorted(generator.permutation(len(long))[:documents])]
    rows, offsets = [], []
    for document in chosen:
        offset = int(generator.integers(0, len(document.tokens) - length))
        rows.append(document.tokens[offset : offset + length + 1])
        offsets.append(offset)
    for document in short[: documents - len(chosen)]:
        chosen.append(document)
        rows.append(document.tokens)
        offsets.append(0)
    return Panel(tuple(d.name for d in chosen), tuple(rows), tuple(offsets))


def sample_targets(panel: Panel, buckets: Buckets, *, context: int, blocks: int, seed: int) -> list[tuple[Span, int]]:
    """Blocks of ``context`` consecutive targets, drawn without replacement in each row and bucket.

    The first bucket, up to the training length, is taken whole: there the excess is zero by construction.

    Returns:
        (document, first, last) and the bucket's index, in order.
    """
    spans: list[tuple[Span, int]] = []
    for document, row in enumerate(panel.rows):
        last_target = len(row) - 1
        for index, (start, stop) in enumerate(buckets):
            stop = min(stop, last_target)
            if index == 0:
                if stop > start:
                    spans.append(((document, start + 1, stop), index))
                continue
            firsts = np.arange(start + 1, stop - context + 2, context)
            if len(firsts) == 0 and stop > start and stop == last_target < buckets[-1][1]:
                continue  # a document that ends within the first block of a bucket does not reach it
            if len(firsts) == 0 and stop > start:
                firsts = np.array([start + 1])  # a last bucket narrower than one block
            generator = np.random.default_rng([seed, 1, document, index])
            for first in sorted(generator.permutation(firsts)[:blocks]):
                spans.append(((document, int(first), int(min(first + context - 1, stop))), index))
    return spans


def mean_by_bucket(found: list[np.ndarray], sample: list[tuple[Span, int]], documents: int, buckets: int) -> np.ndarray:
    """[documents, buckets], the mean loss over a document's targets in a bucket, from the losses of sampled targets."""
    sums, counts = np.zeros((documents, buckets)), targets_by_bucket(sample, documents, buckets)
    for values, ((document, _, _), bucket) in zip(found, sample, strict=True):
        sums[document, bucket] += values.sum(dtype=np.float64)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def targets_by_bucket(sample: list[tuple[Span, int]], documents: int, buckets: int) -> np.ndarray:
    """[documents, buckets], how many targets were sampled."""
    counts = np.zeros((documents, buckets), dtype=np.int64)
    for (document, first, last), bucket in sample:
        counts[document, bucket] += last - first + 1
    return counts
