"""`everlong repair`."""

from rich.console import Console

from everlong.workflows.config import RepairConfig


def run(config: RepairConfig) -> int:
    """Repairs one model or several, prints the table and the outcome, and last the path of the page."""
    from everlong.workflows._start import asked

    if asked("repair", config).is_experiment:
        from everlong.reports.experiment import experiment_lines, experiment_table
        from everlong.workflows.experiment import experiment

        experimented = experiment(config)
        page, tables = experimented.page, (experiment_table(experimented.record),)
        lines = experiment_lines(experimented.record)
    else:
        from everlong.reports.tables import repair_lines, repair_table
        from everlong.workflows.repair import repair

        repaired = repair(config)
        page, tables, lines = repaired.page, (repair_table(repaired.record),), repair_lines(repaired.record)
    console = Console()
    console.print(*tables)
    for line in (*lines, str(page)):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return 0
