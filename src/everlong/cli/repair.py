"""`everlong repair`."""

from rich.console import Console

from everlong.workflows.config import RepairConfig


def run(config: RepairConfig) -> int:
    """Repairs, prints the table, and last the path of the page."""
    from everlong.reports.tables import print_repair
    from everlong.workflows.repair import repair

    record, page = repair(config)
    console = Console()
    print_repair(record, console)
    console.print(str(page), soft_wrap=True, highlight=False, markup=False)
    return 0
