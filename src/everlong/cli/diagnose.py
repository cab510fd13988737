"""`everlong diagnose`."""

from rich.console import Console

from everlong.workflows.config import DiagnoseConfig


def run(config: DiagnoseConfig) -> int:
    """Diagnoses, prints tables, verdicts and findings, and last the path of the page; 1: --fail-above is exceeded."""
    from everlong.reports.findings import findings
    from everlong.reports.tables import diagnosis_lines, diagnosis_table
    from everlong.workflows.diagnose import diagnose

    diagnosed = diagnose(config)
    console = Console()
    for label, diagnosis in diagnosed.diagnoses.items():
        console.print(diagnosis_table(diagnosis))
        for line in (*diagnosis_lines(diagnosis), *findings(label, diagnosis, diagnosed.measures)):
            console.print(line, soft_wrap=True, highlight=False, markup=False)
    record = diagnosed.record
    lines = [f"Warning: {warning}" for warning in record.warnings]
    lines += [record.sentence] if len(record.labels) > 1 else []
    lines += [f"Exceeds --fail-above {record.fail_above:g}: {words}." for words in record.exceeded]
    for line in (*lines, str(diagnosed.page)):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return 1 if record.exceeded else 0
