"""Tables for the terminal: readable at 80 columns, best from 108, and without colour."""

from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from everlong.records.diagnosis import Diagnosis
from everlong.records.repair import Repair
from everlong.reports._blocks import Block, diagnosis_buckets, legend, repair_blocks
from everlong.reports._words import estimate, plural, positions, signed

COLOURS = {"harms": "bold red", "pays": "bold green", "even": "default", "open": "yellow"}
FIRST_COLUMN = 12


def repair_table(repair: Repair) -> Table:
    """The table of a repair: a block a model, a column a position range, and a legend in plain words below."""
    blocks = repair_blocks(repair)
    excess = repair.rows[0].own
    headers = [Text(positions(*bounds), style="bold") for bounds in zip(excess.starts, excess.stops, strict=True)]
    table = Table.grid(expand=True)
    table.title = "Excess loss of reading on, by position (nats a token)"
    table.title_style = "bold"
    table.add_row(aligned([[Text("position", style="bold"), *headers]]))
    for block in blocks:
        table.add_row(Rule(style="dim"))
        table.add_row(_heading(block))
        table.add_row(aligned(_block_rows(block)))
    table.add_row(Rule(style="dim"))
    table.add_row(aligned([[Text("headroom"), *(Text(signed(value)) for value in repair.headroom)]]))
    table.add_row(Rule(style="dim"))
    table.caption = _legend(repair)
    table.caption_justify = "left"
    table.caption_style = "default"
    return table


def repair_lines(repair: Repair) -> tuple[str, ...]:
    """The outcome in one sentence, then the warnings."""
    return (repair.sentence, *(f"Warning: {warning}" for warning in repair.warnings))


def diagnosis_table(diagnosis: Diagnosis) -> Table:
    """The table of a diagnosis: a row a bucket of positions."""
    verdict, width = diagnosis.verdict, diagnosis.context
    table = Table(box=None, expand=True, pad_edge=False, padding=(0, 1, 0, 0))
    table.title, table.title_style = Text(f"{diagnosis.model}: loss by position (nats a token)"), "bold"
    table.add_column("position", justify="right", no_wrap=True)
    for header in ("documents", "carried", f"window\n{width:,}", "best\nwindow"):
        table.add_column(header, justify="right", min_width=6)
    table.add_column("excess over own window", min_width=15)
    table.add_column("reading on", min_width=9)
    for bucket in diagnosis_buckets(diagnosis):
        best = f"{_loss(bucket.best)} ({bucket.best_width:,})" if bucket.best_width else "n/a"
        table.add_row(
            *(positions(bucket.start, bucket.stop), f"{bucket.documents:,}"),
            *(_loss(bucket.carried), _loss(bucket.window), best),
            Text(estimate(bucket.mean, bucket.lower, bucket.upper)),
            Text(bucket.meaning.words, style=COLOURS[bucket.meaning.kind]),
        )
    table.caption = Text(
        f"Perplexity in range {diagnosis.in_range_perplexity:.3f}. Excess: the loss with the state carried from the "
        f"document's beginning, minus that of the model itself, started afresh and shown the last {width:,} tokens at "
        f"most (best window: of any width measured, in brackets). Harms: the whole "
        f"interval above the tolerance of {verdict.tolerance:g} nats; gains: below zero. Intervals: "
        f"{verdict.confidence:.0%}, simultaneous over the buckets; {plural(verdict.documents, 'document')}."
    )
    table.caption_justify = "left"
    table.caption_style = "default"
    return table


def diagnosis_lines(diagnosis: Diagnosis) -> tuple[str, ...]:
    """The verdict in words, and Def. 3.2 under its own name."""
    return (diagnosis.verdict.sentence, f"Definition 3.2 (on perplexity): {diagnosis.verdict.definition_3_2}")


def _heading(block: Block) -> Text:
    text = Text(block.name, style="bold")
    return text.append(f"   perplexity in range {block.perplexity:.3f}   {block.verdict}", style="not bold")


def _block_rows(block: Block) -> list[list[Text]]:
    rows = []
    for line in block.lines:
        rows.append([Text(line.label), *(Text(estimate(*cell)) for cell in line.cells)])
    means = [Text(meaning.words, style=COLOURS[meaning.kind]) for meaning in block.meanings]
    return [*rows, [Text("means"), *means]]


def aligned(rows: list[list[Text]]) -> Table:
    """A piece of the table; equal widths align the pieces one below the other."""
    table = Table.grid(expand=True, padding=(0, 1, 0, 0))
    table.add_column(width=FIRST_COLUMN)
    for _ in rows[0][1:]:
        table.add_column(ratio=1)
    for row in rows:
        table.add_row(*row)
    return table


def _legend(repair: Repair) -> Text:
    excess = repair.rows[0].own
    text = Text()
    for term, words in legend(repair):
        text.append(f"{term}: ", style="bold").append(f"{words}\n", style="not bold")
    return text.append("intervals: ", style="bold").append(
        f"{excess.confidence:.0%}, over {plural(max(excess.documents, default=0), 'document')}, for all ranges at once."
    )


def _loss(value: float) -> str:
    return "n/a" if value != value else f"{value:.3f}"
