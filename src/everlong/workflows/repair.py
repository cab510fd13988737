"""`everlong repair`: diagnose, train control and repairs at one budget, diagnose each, say what came of it."""

from copy import deepcopy
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from shutil import rmtree

from everlong.data.orders import DATA_ORDERS
from everlong.diagnostics.diagnose import diagnose as measure
from everlong.errors import EverlongError
from everlong.interventions._protocol import Intervention
from everlong.interventions.methods import CONFIGS, INTERVENTIONS, create
from everlong.loading import load, save
from everlong.models.language_model import LanguageModel
from everlong.progress import Progress
from everlong.records import Diagnosis, Repair, Training
from everlong.runs import Run
from everlong.training.checkpoint import discard
from everlong.training.config import TrainingConfig
from everlong.training.loop import Source, train
from everlong.workflows._outcome import BEFORE, CONTROL, summarize
from everlong.workflows._proposal import Proposal, propose
from everlong.workflows._start import page_of, start_run
from everlong.workflows._subject import Subject, best_device, open_subject
from everlong.workflows.config import RepairConfig

DEFAULT_ORDER = "shuffled"


@dataclass(frozen=True)
class Repaired:
    """What a repair gives back.

    Attributes:
        record: the table and the outcome.
        diagnoses: of the model before, and of what each method made, by label.
        trainings: what each method's training did.
        page: the report; it lies in the run folder, the models in models/METHOD beside it.
    """

    record: Repair
    diagnoses: dict[str, Diagnosis]
    trainings: dict[str, Training]
    page: Path


def repair(config: RepairConfig, progress: Progress | None = None) -> Repaired:
    """Repairs a model and proves it; see ``RepairConfig``."""
    with start_run("repair", config) as (run, config):
        return _Repairing(run, config, progress or Progress()).work()


def methods_of(config: RepairConfig) -> tuple[str, ...]:
    """The control first, then the methods asked for, each once.

    Raises:
        EverlongError: an unknown method.
    """
    names = dict.fromkeys((CONTROL, *config.methods))
    for name in names:
        if name not in INTERVENTIONS:
            raise EverlongError(f"unknown method {name!r} in --methods; known: {', '.join(INTERVENTIONS)}")
    return tuple(names)


@dataclass
class _Repairing:
    run: Run
    config: RepairConfig
    progress: Progress

    def work(self) -> Repaired:
        """All phases in order; one whose record exists is not done again."""
        config = self.config
        methods = methods_of(config)
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
        arms = {method: self._arm(subject, method, proposal) for method in methods}
        self.progress.say(proposal.words)
        diagnoses = {BEFORE: self._diagnose(subject, subject.checkpoint.model, BEFORE)}
        trainings: dict[str, Training] = {}
        for method in methods:
            arm = arms.pop(method)  # what it carries need not outlive its training
            trainings[method] = self.run.phase(
                f"training-{method}", lambda arm=arm: self._train(subject, *arm, proposal), everyone=True
            )
            self.run.crew.on_main(lambda method=method: discard(self.run.path, method))
            diagnoses[method] = self._diagnose(subject, None, method)
        record = self.run.phase("repair", lambda: summarize(diagnoses, trainings, proposal.words))
        return Repaired(record, diagnoses, trainings, page_of(self.run))

    def _diagnose(self, subject: Subject, model: LanguageModel | None, label: str) -> Diagnosis:
        """Measures a model, or the one that a method has made."""
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

    def _arm(self, subject: Subject, method: str, proposal: Proposal) -> tuple[Intervention, Source]:
        """A method and the batches that it trains on; methods that need no order of their own share one."""
        config, seed = self.config, self.config.runtime.seed
        share = proposal.reset_probability
        takes = {field.name for field in fields(CONFIGS[method])}
        settings = {name: share for name in ("reset_probability", "zero_share") if name in takes}
        intervention = create(method, seed=seed, **settings)
        order = DEFAULT_ORDER if intervention.data_order == "any" else intervention.data_order
        length = intervention.row_length(subject.context)
        return intervention, DATA_ORDERS[order](
            subject.text.train, length=length, batch_size=config.batch_size, seed=seed
        )

    def _train(self, subject: Subject, intervention: Intervention, source: Source, proposal: Proposal) -> Training:
        config, method = self.config, intervention.name
        model = deepcopy(subject.checkpoint.model)
        record = train(
            model,
            source,
            intervention,
            TrainingConfig(
                **asdict(config.engine),
                steps=proposal.steps,
                batch_size=config.batch_size,
                learning_rate=config.learning_rate,
                learning_rate_floor=min(TrainingConfig.learning_rate_floor, config.learning_rate),
            ),
            run=self.run,
            phase=method,
            progress=self.progress,
            label=f"training {method}",
        )
        folder = self._folder(method)

        def write() -> None:
            rmtree(folder, ignore_errors=True)  # a model without a record: the run was killed between the two
            save(replace(subject.checkpoint, model=model, context=subject.context), folder)

        self.run.crew.on_main(write)
        return replace(record, model_folder=str(folder.relative_to(self.run.path)))

    def _folder(self, method: str) -> Path:
        return self.run.path / "models" / method
