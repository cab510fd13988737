"""The batches of text that an arm trains on, and what is said of them: rows, horizon, and what no row reads."""

from everlong.data.batch import Source, TextSource
from everlong.data.corpus import Corpus
from everlong.data.orders import DATA_ORDERS
from everlong.interventions._protocol import Intervention

DEFAULT_ORDER = "shuffled"


def text_source(
    corpus: Corpus, intervention: Intervention, *, context: int, batch_size: int, seed: int, order: str | None = None
) -> TextSource:
    """Rows of a corpus as an intervention has them read, in the order that it needs.

    Args:
        corpus: the training text.
        intervention: says how long a row is.
        context: the training length in tokens.
        batch_size: rows of one training context in a step.
        seed: of the order.
        order: the data order; None: the one that the intervention needs, else shuffled.
    """
    order = order or (DEFAULT_ORDER if intervention.data_order == "any" else intervention.data_order)
    rows = intervention.row_count(batch_size)
    return DATA_ORDERS[order](corpus, length=intervention.row_length(context), batch_size=rows, seed=seed)


def left_out(source: Source) -> dict[str, int]:
    """What no row reads, as the record of a training has it; nothing for the examples of a task."""
    if not isinstance(source, TextSource):
        return {}
    return {"documents_left_out": source.documents_left_out, "tokens_left_out": source.tokens_left_out}


def left_out_in_words(source: TextSource, corpus: Corpus, remedy: str) -> str:
    """What no row reads, as a line; empty where there is nothing.

    Args:
        source: reads the corpus.
        corpus: the training text.
        remedy: what reads documents that are too short.
    """
    if not source.tokens_left_out:
        return ""
    tokens = f"{source.tokens_left_out:,} of {corpus.tokens:,} tokens ({source.tokens_left_out / corpus.tokens:.1%})"
    if not source.documents_left_out:
        return f"ends of documents that fill no row of {source.length:,} tokens are left out, {tokens}"
    return (
        f"{source.documents_left_out:,} of {len(corpus.sizes):,} documents are too short to be read in "
        f"rows of {source.length:,} tokens and are left out; with the ends of the others, that is {tokens}: {remedy}"
    )


def rows_in_words(intervention: Intervention, source: Source, *, at_most: bool = False) -> str:
    """What an arm reads a step, what of it is scored, and how far a gradient goes back.

    Args:
        intervention: the arm's.
        source: of its batches.
        at_most: whether rows may be shorter, as the examples of a task are.
    """
    length, prefix = source.length, intervention.unscored_prefix
    horizon = length if intervention.prefix_gradient else length - prefix
    before = f", of which the first {prefix:,} are not scored," if prefix else ""
    ahead = f"; {intervention.prefill_steps:,} steps are read ahead, without loss" if intervention.prefill_steps else ""
    return (
        f"{source.batch_size:,} rows of {'at most ' if at_most else ''}{length:,} tokens{before} a step; the "
        f"gradient's horizon is {horizon:,} tokens{ahead}"
    )
