"""`everlong doctor`."""

from rich.console import Console

from everlong.workflows.config import DoctorConfig


def run(config: DoctorConfig) -> int:
    """Examines, prints one screen and the finding, and last the run folder where one was asked for; 1: it is wrong."""
    from everlong.reports.checks import doctor_lines, doctor_screen
    from everlong.workflows.doctor import doctor

    record = doctor(config)
    console = Console()
    console.print(doctor_screen(record))
    for line in (*doctor_lines(record), *([config.output] if config.output else [])):
        console.print(line, soft_wrap=True, highlight=False, markup=False)
    return 1 if record.wrong else 0
