"""`everlong diagnose`: one model or several on the same text, every measure, one run folder, a verdict on each."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from everlong.diagnostics._examination import Examination, examination
from everlong.diagnostics.diagnose import diagnose as measure
from everlong.diagnostics.measures import MEASURES
from everlong.errors import EverlongError
from everlong.progress import Progress
from everlong.records.diagnosis import Diagnosis, Overview
from everlong.runs import Run
from everlong.workflows._inputs import HELD_OUT_TEXT, check_inputs, model_digest, text_digest
from everlong.workflows._overview import labels_of, overview
from everlong.workflows._start import page_of, start_run
from everlong.workflows._subject import Subject, open_subject
from everlong.workflows.config import DiagnoseConfig

QUICK_DOCUMENTS = 12  # that a quick diagnosis reads, at the most; a verdict needs 8


@dataclass(frozen=True)
class Diagnosed:
    """What a diagnosis gives back.

    Attributes:
        record: the outcome, with its warnings.
        diagnoses: of each model, by label.
        measures: measure -> label -> its record; those that could not be made are left out.
        page: the report; the run folder is the page's.
    """

    record: Overview
    diagnoses: dict[str, Diagnosis]
    measures: dict[str, dict[str, Any]]
    page: Path


def diagnose(config: DiagnoseConfig, progress: Progress | None = None) -> Diagnosed:
    """Diagnoses models; see ``DiagnoseConfig``.

    Raises:
        EverlongError: bad input, before any work; or ``fail_above`` is asked for and no bucket can be judged.
    """
    progress = progress or Progress()
    with start_run("diagnose", config, progress.say) as (run, config):
        if config.diagnosis.quick:
            documents = min(config.diagnosis.documents, QUICK_DOCUMENTS)
            config = replace(config, diagnosis=replace(config.diagnosis, documents=documents))
        return _Diagnosing(run, config, progress).work()


@dataclass
class _Diagnosing:
    run: Run
    config: DiagnoseConfig
    progress: Progress

    def work(self) -> Diagnosed:
        """All phases in order, model by model; one whose record exists is not done again."""
        diagnoses: dict[str, Diagnosis] = {}
        measures: dict[str, dict[str, Any]] = {name: {} for name in self.config.chosen_measures}
        left_out: list[str] = []
        labels = labels_of(self.config.models)
        parts = len(labels) * (1 + len(measures))
        for model, (label, subject) in enumerate(zip(labels, self._subjects(), strict=True)):
            done = model * (1 + len(measures))
            found = {f"model {label}": model_digest(subject.checkpoint.model)}
            check_inputs(self.run, {**found, HELD_OUT_TEXT: text_digest(subject.text.held_out)})
            self.progress.say(f"part {done + 1} of {parts}: {label}, loss by position")
            diagnoses[label] = self.run.phase(f"diagnosis-{label}", partial(self._diagnose, subject, label))
            examined = self._examination(subject, label)
            for index, name in enumerate(measures):
                self.progress.say(f"part {done + index + 2} of {parts}: {label}, {name.replace('_', ' ')}")
                try:
                    measures[name][label] = self.run.phase(
                        f"{name}-{label}", partial(MEASURES[name], examined, self.config.measuring)
                    )
                except EverlongError as error:
                    if error.exit_code != EverlongError.exit_code:
                        raise  # the run had to stop
                    left_out.append(f"{name.replace('_', ' ')} of {label} could not be measured: {error}.")
                    self.progress.say(f"Warning: {left_out[-1]}")
        record = self.run.phase("overview", lambda: overview(self.config, diagnoses, measures, left_out))
        return Diagnosed(record, diagnoses, measures, page_of(self.run))

    def _subjects(self) -> Iterator[Subject]:
        """The models one after the other, so that one at a time is held; bad input in the last is found first."""
        quiet = Progress(Console(quiet=True))  # what is said of the text is said once
        for model in reversed(self.config.models[1:]):
            self._open(model, quiet)
        subject = self._open(self.config.models[0], self.progress)
        yield subject
        for model in self.config.models[1:]:
            del subject  # before the next is opened
            subject = self._open(model, quiet)
            yield subject

    def _open(self, model: str, progress: Progress) -> Subject:
        config = self.config
        subject = self.run.crew.together(
            lambda: open_subject(
                model, config.context, config.data, config.diagnosis, config.runtime, progress, trains=False
            )
        )
        if config.diagnosis.max_length <= subject.context:
            raise EverlongError(
                f"--max-length {config.diagnosis.max_length} is not beyond the training context of {subject.context} "
                f"tokens of {subject.checkpoint.name}"
            )
        return subject

    def _diagnose(self, subject: Subject, label: str) -> Diagnosis:
        return measure(
            subject.checkpoint.model,
            subject.text.held_out,
            context=subject.context,
            config=self.config.diagnosis,
            label=label,
            model_name=subject.checkpoint.name,
            seed=self.config.runtime.seed,
            progress=self.progress,
        )

    def _examination(self, subject: Subject, label: str) -> Examination:
        settings = self.config.diagnosis
        return examination(
            subject.checkpoint.model,
            subject.text.held_out,
            context=subject.context,
            length=settings.max_length,
            documents=settings.documents,
            label=label,
            model_name=subject.checkpoint.name,
            confidence=settings.confidence,
            tolerance=settings.tolerance,
            seed=self.config.runtime.seed,
            progress=self.progress,
        )
