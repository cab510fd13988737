"""The table of an experiment for the terminal."""

from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from everlong.records.experiment import Experiment
from everlong.reports._experiment_blocks import arm_blocks, legend
from everlong.reports._words import plural, positions
from everlong.reports.tables import aligned


def experiment_table(experiment: Experiment) -> Table:
    """A block an arm, a column a position range, and a legend in plain words below."""
    headers = [positions(*bounds) for bounds in zip(experiment.starts, experiment.stops, strict=True)]
    table = Table.grid(expand=True)
    table.title = f"Excess loss of reading on over {plural(len(experiment.bases), 'base')}, by position (nats a token)"
    table.title_style = "bold"
    table.add_row(aligned([[Text(text, style="bold") for text in ("position", *headers)]]))
    for block in arm_blocks(experiment):
        table.add_row(Rule(style="dim"))
        heading = Text(block.name, style="bold")
        table.add_row(heading.append(f"   perplexity in range {block.perplexity:.3f}", style="not bold"))
        table.add_row(aligned([[Text(label), *map(Text, cells)] for label, cells in block.lines]))
    table.add_row(Rule(style="dim"))
    caption = Text()
    for term, words in legend(experiment):
        caption.append(f"{term}: ", style="bold").append(f"{words}\n", style="not bold")
    table.caption, table.caption_justify, table.caption_style = caption, "left", "default"
    return table


def experiment_lines(experiment: Experiment) -> tuple[str, ...]:
    """The outcome in one sentence."""
    return (experiment.sentence,)
