"""`everlong repair`: diagnose, train control and repairs at one budget, diagnose each, say what came of it."""

from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shutil import rmtree

from everlong.data.batch import TextSource
from everlong.diagnostics.comparison import BEFORE, CONTROL
from everlong.diagnostics.diagnose import diagnose as measure
from everlong.errors import EverlongError
from everlong.interventions._protocol import Intervention
from everlong.interventions.arms import Arm, parse_arm
from everlong.interventions.methods import create
from everlong.loading import best_device, load, parse_dtype, save
from everlong.models.language_model import LanguageModel
from everlong.progress import Progress
from everlong.records.diagnosis import Diagnosis
from everlong.records.repair import Repair
from everlong.records.training import Training
from everlong.runs import Run
from everlong.training.checkpoint import discard
from everlong.training.config import TrainingConfig
from everlong.training.loop import train
from everlong.training.refusals import check_engine
from everlong.workflows._batches import left_out, left_out_in_words, rows_in_words, text_source
from everlong.workflows._inputs import (
    HELD_OUT_TEXT,
    START_MODEL,
    TRAINING_TEXT,
    check_inputs,
    model_digest,
    text_digest,
)
from everlong.workflows._outcome import summarize
from everlong.workflows._proposal import Proposal, propose
from everlong.workflows._start import asked, page_of, start_run
from everlong.workflows._subject import Subject, open_subject
from everlong.workflows.config import RepairConfig

REMEDY = "longer documents would be read; `everlong train --data-order packed` reads short ones"


@dataclass(frozen=True)
class Repaired:
    """What a repair gives back.

    Attributes:
        record: the table and the outcome.
        diagnoses: of the model before, and of what each arm made, by label.
        trainings: what each arm's training did.
        page: the report; it lies in the run folder, the models in models/ARM beside it.
    """

    record: Repair
    diagnoses: dict[str, Diagnosis]
    trainings: dict[str, Training]
    page: Path


def repair(config: RepairConfig, progress: Progress | None = None) -> Repaired:
    """Repairs a model and proves it; see ``RepairConfig``. Of several bases or seeds, see ``experiment``."""
    if asked("repair", config).is_experiment:
        raise EverlongError("bases and seeds are an experiment's: call everlong.experiment with this configuration")
    progress = progress or Progress()
    with start_run("repair", config, progress.say) as (run, config):
        return _Repairing(run, config, progress).work()


def arms_of(config: RepairConfig) -> tuple[Arm, ...]:
    """The control first, then the arms asked for, each once.

    Raises:
        EverlongError: an unknown method or setting, a value out of range, rows that do not come out whole, or a
            training that cannot be carried out as it is asked for.
    """
    arms = tuple(parse_arm(text) for text in dict.fromkeys((CONTROL, *config.methods)))
    for arm in arms:
        rows = create(arm.method, seed=config.runtime.seed, **arm.settings).row_count(config.batch_size)
        check_engine(config.engine, rows=rows, dtype=parse_dtype(config.runtime.dtype))
    return arms


@dataclass(frozen=True)
class _Prepared:
    """An arm, ready to be trained."""

    intervention: Intervention
    source: TextSource
    recipe: TrainingConfig


@dataclass
class _Repairing:
    run: Run
    config: RepairConfig
    progress: Progress

    def work(self) -> Repaired:
        """All phases in order; one whose record exists is not done again."""
        config = self.config
        asked = arms_of(config)
        subject = self.run.crew.together(
            lambda: open_subject(
                config.model,
                config.context,
                config.data,
                config.diagnosis,
                config.runtime,
                self.progress,
                trains=True,
            )
        )
        proposal = propose(config, subject.context)
        arms = {arm.label: self._arm(subject, arm, proposal) for arm in asked}
        texts = subject.text
        inputs = {START_MODEL: model_digest(subject.checkpoint.model), TRAINING_TEXT: text_digest(texts.train)}
        check_inputs(self.run, {**inputs, HELD_OUT_TEXT: text_digest(texts.held_out)})
        self._say_left_out(subject, {label: arm.source for label, arm in arms.items()})
        self.progress.say(proposal.words)
        diagnoses = {BEFORE: self._diagnose(subject, subject.checkpoint.model, BEFORE)}
        trainings: dict[str, Training] = {}
        for label in tuple(arms):
            arm = arms.pop(label)  # what it carries need not outlive its training
            trainings[label] = self.run.phase(
                f"training-{label}",
                lambda label=label, arm=arm: self._train(subject, label, arm, inputs),
                everyone=True,
            )
            self.run.crew.on_main(lambda label=label: discard(self.run.path, label))
            diagnoses[label] = self._diagnose(subject, None, label)
        record = self.run.phase("repair", lambda: summarize(diagnoses, trainings, proposal.words))
        return Repaired(record, diagnoses, trainings, page_of(self.run))

    def _diagnose(self, subject: Subject, model: LanguageModel | None, label: str) -> Diagnosis:
        """Measures a model, or the one that an arm has made."""
        runtime = self.config.runtime
        folder = self._folder(label)

        def work() -> Diagnosis:
            return measure(
                model or load(folder, backend=runtime.backend, device=best_device(runtime.device), dtype=runtime.dtype),
                subject.text.held_out,
                context=subject.context,
                config=self.config.diagnosis,
                label=label,
                model_name=subject.checkpoint.name if model else str(folder),
                seed=runtime.seed,
                progress=self.progress,
            )

        return self.run.phase(f"diagnosis-{label}", work)

    def _arm(self, subject: Subject, arm: Arm, proposal: Proposal) -> _Prepared:
        """A method, its batches and its recipe; methods that need no order of their own share one."""
        config, seed = self.config, self.config.runtime.seed
        share = {"reset_probability": proposal.reset_probability} if arm.takes("reset_probability") else {}
        intervention = create(arm.method, seed=seed, **share, **arm.settings)
        source = text_source(
            subject.text.train, intervention, context=subject.context, batch_size=config.batch_size, seed=seed
        )
        recipe = TrainingConfig(
            **asdict(config.engine),
            steps=proposal.steps,
            batch_size=source.batch_size,
            learning_rate=config.learning_rate,
            learning_rate_floor=min(TrainingConfig.learning_rate_floor, config.learning_rate),
        )
        return _Prepared(intervention, source, recipe)

    def _say_left_out(self, subject: Subject, sources: dict[str, TextSource]) -> None:
        """Says what of the text no row reads: arms with rows alike together."""
        arms: dict[str, list[str]] = {}
        for label, source in sources.items():
            arms.setdefault(left_out_in_words(source, subject.text.train, REMEDY), []).append(label)
        for words, labels in arms.items():
            if words:
                self.progress.say(f"{', '.join(labels)}: {words}")

    def _train(self, subject: Subject, label: str, arm: _Prepared, inputs: dict[str, str]) -> Training:
        self.progress.say(f"{label}: {rows_in_words(arm.intervention, arm.source)}")
        model = deepcopy(subject.checkpoint.model)
        record = train(
            model,
            arm.source,
            arm.intervention,
            arm.recipe,
            run=self.run,
            phase=label,
            progress=self.progress,
            label=f"training {label}",
            inputs=inputs,
        )
        folder = self._folder(label)

        def write() -> None:
            rmtree(folder, ignore_errors=True)  # a model without a record: the run was killed between the two
            save(replace(subject.checkpoint, model=model, context=subject.context), folder)

        self.run.crew.on_main(write)
        return replace(record, model_folder=str(folder.relative_to(self.run.path)), **left_out(arm.source))

    def _folder(self, label: str) -> Path:
        return self.run.path / "models" / label
