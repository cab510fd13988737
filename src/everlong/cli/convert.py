"""`everlong convert`."""

from rich.console import Console

from everlong.workflows.config import ConvertConfig


def run(config: ConvertConfig) -> int:
    """Converts, prints the proof, and last the folder; 1 where the proof failed and nothing was kept."""
    from everlong.reports.checks import conversion_lines, conversion_table
    from everlong.workflows.convert import convert

    record = convert(config)
    console = Console()
    console.print(conversion_table(record))
    for line in conversion_lines(record):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return 1 if record.wrong else 0
