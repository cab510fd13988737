"""`everlong repair`."""

from rich.console import Console

from everlong.workflows.config import RepairConfig


def run(config: RepairConfig) -> int:
    """Repairs, prints the table and the outcome, and last the path of the page."""
    from everlong.reports.tables import repair_lines, repair_table
    from everlong.workflows.repair import repair

    repaired = repair(config)
    console = Console()
    console.print(repair_table(repaired.record))
    for line in (*repair_lines(repaired.record), str(repaired.page)):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return 0
