"""`everlong repair`: diagnose, train control and repairs at one budget, diagnose each, say what came of it."""

from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shutil import rmtree

from everlong.data.batch import Source
from everlong.data.orders import DATA_ORDERS
from everlong.diagnostics.comparison import BEFORE, CONTROL
from everlong.diagnostics.diagnose import diagnose as measure
from everlong.errors import EverlongError
from everlong.interventions._protocol import Intervention
from everlong.interventions.arms import Arm, parse_arm
from everlong.interventions.methods import create
from everlong.loading import best_device, load, save
from everlong.models.language_model import LanguageModel
from everlong.progress import Progress
from everlong.records.diagnosis import Diagnosis
from everlong.records.repair import Repair
from everlong.records.training import Training
from everlong.runs import Run
from everlong.training.checkpoint import discard
from everlong.training.config import TrainingConfig
from everlong.training.loop import train
from everlong.workflows._outcome import summarize
from everlong.workflows._proposal import Proposal, propose
from everlong.workflows._start import asked, page_of, start_run
from everlong.workflows._subject import Subject, open_subject
from everlong.workflows.config import RepairConfig

DEFAULT_ORDER = "shuffled"


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
        EverlongError: an unknown method or setting, a value out of range, or rows that do not come out whole.
    """
    arms = tuple(parse_arm(text) for text in dict.fromkeys((CONTROL, *config.methods)))
    for arm in arms:
        create(arm.method, seed=config.runtime.seed, **arm.settings).row_count(config.batch_size)
    return arms


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
        self.progress.say(proposal.words)
        diagnoses = {BEFORE: self._diagnose(subject, subject.checkpoint.model, BEFORE)}
        trainings: dict[str, Training] = {}
        for label in tuple(arms):
            arm = arms.pop(label)  # what it carries need not outlive its training
            trainings[label] = self.run.phase(
                f"training-{label}",
                lambda label=label, arm=arm: self._train(subject, label, *arm, proposal),
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

    def _arm(self, subject: Subject, arm: Arm, proposal: Proposal) -> tuple[Intervention, Source]:
        """A method and the batches that it trains on; methods that need no order of their own share one."""
        config, seed = self.config, self.config.runtime.seed
        share = {"reset_probability": proposal.reset_probability} if arm.takes("reset_probability") else {}
        intervention = create(arm.method, seed=seed, **share, **arm.settings)
        order = DEFAULT_ORDER if intervention.data_order == "any" else intervention.data_order
        length, rows = intervention.row_length(subject.context), intervention.row_count(config.batch_size)
        return intervention, DATA_ORDERS[order](subject.text.train, length=length, batch_size=rows, seed=seed)

    def _train(
        self, subject: Subject, label: str, intervention: Intervention, source: Source, proposal: Proposal
    ) -> Training:
        config = self.config
        self.progress.say(f"{label}: {_rows_in_words(intervention, subject.context, config.batch_size)}")
        model = deepcopy(subject.checkpoint.model)
        record = train(
            model,
            source,
            intervention,
            TrainingConfig(
                **asdict(config.engine),
                steps=proposal.steps,
                batch_size=intervention.row_count(config.batch_size),
                learning_rate=config.learning_rate,
                learning_rate_floor=min(TrainingConfig.learning_rate_floor, config.learning_rate),
            ),
            run=self.run,
            phase=label,
            progress=self.progress,
            label=f"training {label}",
        )
        folder = self._folder(label)

        def write() -> None:
            rmtree(folder, ignore_errors=True)  # a model without a record: the run was killed between the two
            save(replace(subject.checkpoint, model=model, context=subject.context), folder)

        self.run.crew.on_main(write)
        return replace(record, model_folder=str(folder.relative_to(self.run.path)))

    def _folder(self, label: str) -> Path:
        return self.run.path / "models" / label


def _rows_in_words(intervention: Intervention, context: int, batch_size: int) -> str:
    """What an arm reads a step, what of it is scored, and how far a gradient goes back."""
    length, prefix = intervention.row_length(context), intervention.unscored_prefix
    horizon = length if intervention.prefix_gradient else length - prefix
    before = f", of which the first {prefix:,} are not scored," if prefix else ""
    ahead = f"; {intervention.prefill_steps:,} steps are read ahead, without loss" if intervention.prefill_steps else ""
    return (
        f"{intervention.row_count(batch_size):,} rows of {length:,} tokens{before} a step; the gradient's horizon is "
        f"{horizon:,} tokens{ahead}"
    )
