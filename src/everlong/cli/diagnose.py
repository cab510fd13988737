"""`everlong diagnose`."""

from rich.console import Console

from everlong.workflows.config import DiagnoseConfig


def run(config: DiagnoseConfig) -> int:
    """Diagnoses, prints the table and the verdict, and last the path of the page."""
    from everlong.reports.tables import diagnosis_lines, diagnosis_table
    from everlong.workflows.diagnose import diagnose

    record, page = diagnose(config)
    console = Console()
    console.print(diagnosis_table(record))
    for line in (*diagnosis_lines(record), str(page)):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return 0
