"""`everlong diagnose`: one model, one run folder, one verdict."""

from pathlib import Path

from everlong.diagnostics.diagnose import diagnose as measure
from everlong.progress import Progress
from everlong.records import Diagnosis
from everlong.workflows._start import page_of, start_run
from everlong.workflows._subject import open_subject
from everlong.workflows._warnings import data_warnings
from everlong.workflows.config import DiagnoseConfig

LABEL = "before"


def diagnose(config: DiagnoseConfig, progress: Progress | None = None) -> tuple[Diagnosis, Path]:
    """Diagnoses a model; see ``DiagnoseConfig``.

    Returns:
        The record, and the page of the report; the run folder is the page's.
    """
    progress = progress or Progress()
    with start_run("diagnose", config) as (run, config):
        subject = run.crew.together(
            lambda: open_subject(
                config.model, config.context, config.data, config.diagnosis, config.runtime, progress, trains=False
            )
        )
        diagnosis = run.phase(
            f"diagnosis-{LABEL}",
            lambda: measure(
                subject.checkpoint.model,
                subject.text.held_out,
                context=subject.context,
                config=config.diagnosis,
                label=LABEL,
                model_name=subject.checkpoint.name,
                seed=config.runtime.seed,
                progress=progress,
            ),
        )
        for warning in data_warnings(diagnosis):
            progress.say(f"Warning: {warning}")
        return diagnosis, page_of(run)
