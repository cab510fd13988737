"""`everlong evaluate`."""

from rich.console import Console

from everlong.workflows.config import EvaluateConfig


def run(config: EvaluateConfig) -> int:
    """Evaluates, prints a table a task, and last the path of the page."""
    from everlong.reports.task_table import task_lines, task_table
    from everlong.workflows.evaluate import evaluate

    records, page = evaluate(config)
    console = Console()
    for record in records.values():
        console.print(task_table(record))
        for line in task_lines(record):
            console.print(line, soft_wrap=True, highlight=False, markup=False)
    console.print(str(page), soft_wrap=True, highlight=False, markup=False)
    return 0
