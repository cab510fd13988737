"""`everlong repair --bases N --seeds M`: all arms from several bases, and what holds over the bases.

RUN/bases/base-I/              where the bases are trained here: a run of `everlong train`
RUN/repairs/base-I-seed-S/     each repair: a run of `everlong repair`, with models, records and page of its own
RUN/records/experiment.json    the table over the bases
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree

from everlong import launch
from everlong.diagnostics.over_bases import over_bases
from everlong.errors import EverlongError, RunInterrupted
from everlong.progress import Progress
from everlong.records.experiment import Experiment
from everlong.records.files import load_record
from everlong.records.repair import Repair
from everlong.runs import Run
from everlong.workflows._nested import in_folder
from everlong.workflows._start import page_of, start_run
from everlong.workflows._subject import open_checkpoint
from everlong.workflows.config import RepairConfig, RuntimeConfig, TrainConfig
from everlong.workflows.repair import arms_of, repair
from everlong.workflows.train import SCRATCH, train


@dataclass(frozen=True)
class Experimented:
    """What an experiment gives back.

    Attributes:
        record: the table over the bases.
        page: the report; it lies in the run folder, each repair's own in repairs/ beside it.
    """

    record: Experiment
    page: Path


def experiment(config: RepairConfig, progress: Progress | None = None) -> Experimented:
    """Repairs several bases under several seeds, all arms at one budget; see ``RepairConfig``'s bases and seeds."""
    if launch.process_count() > 1:
        raise EverlongError(
            f"torchrun started {launch.process_count()} processes, and --bases and --seeds work in one: start without "
            "it, or repair the bases one by one by torchrun"
        )
    progress = progress or Progress()
    with start_run("repair", config, progress.say) as (run, config):
        return _Experimenting(run, config, progress).work()


@dataclass
class _Experimenting:
    run: Run
    config: RepairConfig
    progress: Progress

    def work(self) -> Experimented:
        """Base after base and seed after seed; what is finished is not done again."""
        config = self.config
        self._check()
        seeds = tuple(range(config.runtime.seed, config.runtime.seed + config.seeds))
        bases, runs, repairs = [], [], []
        for place in range(config.base_count or len(config.bases) or 1):
            bases.append(self._base(place))
            names = [f"base-{place}-seed-{seed}" for seed in seeds]
            runs += [f"repairs/{name}" for name in names]
            repairs.append([self._repair(bases[-1], name, seed) for name, seed in zip(names, seeds, strict=True)])
        each = [repair for of_base in repairs for repair in of_base]
        seconds = {name: sum(repair.seconds.values(), 0.0) for name, repair in zip(runs, each, strict=True)}
        names = [str(Path(base).relative_to(self.run.path)) if config.base_count else base for base in bases]
        record = self.run.phase(
            "experiment", lambda: over_bases(repairs, bases=names, seeds=seeds, runs=runs, seconds=seconds)
        )
        return Experimented(record, page_of(self.run))

    def _check(self) -> None:
        """Raises before any work where something asked for cannot be had."""
        config = self.config
        arms_of(config)
        if config.data.data and not config.data.held_out:
            raise EverlongError(
                "several bases or seeds need --held-out beside --data: without it the seed says what is held out, and "
                "a base could be measured on what it was trained on"
            )
        for model in () if config.base_count else config.bases or (config.model,):
            open_checkpoint(model, config.runtime)

    def _base(self, place: int) -> str:
        """A model: one that was named, or one trained here by the recipe of `everlong train`."""
        config, runtime = self.config, self.config.runtime
        if not config.base_count:
            return (config.bases or (config.model,))[place]
        folder = self.run.path / "bases" / f"base-{place}"
        model = folder / "models" / SCRATCH
        if not (folder / "records" / f"training-{SCRATCH}.json").is_file():
            self.progress.say(f"base {place + 1} of {config.base_count} is trained")
            recipe = TrainConfig(
                context=config.context or TrainConfig().context,
                data=replace(config.data, tokenizer=config.data.tokenizer or TrainConfig().data.tokenizer),
                runtime=self._runtime(runtime.seed + place),
            )
            with self._as_one_run(folder):
                train(in_folder(recipe, folder), self.progress)
        return str(model)

    def _repair(self, model: str, name: str, seed: int) -> Repair:
        folder = self.run.path / "repairs" / name
        finished = folder / "records" / "repair.json"
        if finished.is_file():
            return load_record(finished)
        self.progress.say(f"{name}: {model}")
        config = replace(self.config, model=model, bases=(), seeds=1, runtime=self._runtime(seed))
        with self._as_one_run(folder):
            return repair(in_folder(config, folder), self.progress).record

    def _runtime(self, seed: int) -> RuntimeConfig:
        return replace(self.config.runtime, seed=seed, output=None, resume=None)

    @contextmanager
    def _as_one_run(self, folder: Path) -> Iterator[None]:
        """A run within this one: a stillborn folder does not stand in its way, and an interruption names this run."""
        if folder.is_dir() and not (folder / "config.json").exists():
            rmtree(folder)  # killed before it had settings, hence before any work
        try:
            yield
        except RunInterrupted:
            raise RunInterrupted(
                f"interrupted and saved; go on with `everlong {self.run.verb} --resume {self.run.path}`"
            ) from None
