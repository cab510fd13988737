"""`everlong diagnose`."""

from rich.console import Console

from everlong.workflows.config import DiagnoseConfig


def run(config: DiagnoseConfig) -> int:
    """Diagnoses, prints the table and the verdict, and last the path of the page."""
    from everlong.reports.tables import print_diagnosis
    from everlong.workflows.diagnose import diagnose

    record, page = diagnose(config)
    console = Console()
    print_diagnosis(record, console)
    console.print(str(page), soft_wrap=True, highlight=False, markup=False)
    return 0
