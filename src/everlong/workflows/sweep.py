"""Ways of learning a task, each under several seeds and learning rates, from runs of `train` and `evaluate`.

OUTPUT/trials/ARM/rate-R/seed-S/   of an arm that trains nothing: OUTPUT/trials/ARM/
    stage-I/                       a run of `everlong train`; a stage goes on from the one before
    evaluation-I/                  a run of `everlong evaluate`
OUTPUT/records/sweep.json          the table over seeds

A stage that arms have in common, from the same start, is trained once and lies in the folder of the first of them.

Learning such tasks is a lottery over seeds and learning rates. So a sweep gives the share of seeds that learn, judges
each arm at its own best rate, chosen within the training length, and pairs the arms on seeds and examples.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from everlong.errors import EverlongError
from everlong.progress import Progress
from everlong.records.files import load_record, save_record
from everlong.records.sweep import Sweep
from everlong.records.tasks import TaskEvaluation
from everlong.records.training import Training
from everlong.reports.sweep_figure import write_sweep_figures
from everlong.tasks.over_seeds import Learned, Trials, over_seeds
from everlong.workflows._nested import in_folder
from everlong.workflows._subject import open_checkpoint
from everlong.workflows.config import EvaluateConfig, TrainConfig
from everlong.workflows.evaluate import evaluate
from everlong.workflows.train import FINETUNED, SCRATCH, train


@dataclass(frozen=True, kw_only=True)
class Way:
    """An arm: one way of learning.

    Attributes:
        words: what it is, for people.
        stages: trainings, one after the other; the peak learning rate, the seed and, from the second stage on, the
            start are filled in, and all but the last keep the rate after their warm-up. Where there are none, the start
            is evaluated as it is.
        start: the model that an arm without stages evaluates.
    """

    words: str
    stages: tuple[TrainConfig, ...] = ()
    start: str | None = None


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """What to try.

    Attributes:
        output: folder; what is there already is not done again.
        ways: arms by label.
        learning_rates: peaks, each tried under every seed.
        seeds: of weights, batches and what is drawn.
        evaluations: of every trial, of one task, their cells put together; the model is filled in, and the seed is
            that of the examples, the same for all.
        learned: when a seed counts as having learned.
        settings: what else a reader of the record must know.
        minutes: no trial is begun later than so; seeds that all arms are through with are judged. None: no bound.
    """

    output: Path
    ways: Mapping[str, Way]
    learning_rates: tuple[float, ...]
    seeds: tuple[int, ...]
    evaluations: tuple[EvaluateConfig, ...]
    learned: Learned
    settings: Mapping[str, Any]
    minutes: float | None = None


def sweep(config: SweepConfig, say: Callable[[Sweep], str], progress: Progress | None = None) -> Sweep | None:
    """Runs what is not there yet, seed after seed, and writes record and figures.

    Args:
        config: what to try.
        say: makes the record's sentence, from its figures.
        progress: where bars are shown.

    Returns:
        The record; None where the time was up before every arm was through with one seed.

    Raises:
        EverlongError: bad settings of any trial, other ones than those of the trials that are there, or not one task.
    """
    tasks = {name for evaluation in config.evaluations for name in evaluation.task}
    if len(tasks) != 1:
        raise EverlongError(f"a sweep is of one task; {', '.join(sorted(tasks)) or 'none'} is none or several")
    work = _Sweeping(config, progress or Progress())
    done = []
    for seed in config.seeds:
        if not work.through(seed):
            break
        done.append(seed)
    if not done:
        return None
    record = work.record(tuple(done))
    record = replace(record, sentence=say(record))
    save_record(record, config.output / "records" / "sweep.json")
    write_sweep_figures(record, config.output / "figures")
    return record


@dataclass
class _Sweeping:
    config: SweepConfig
    progress: Progress

    def __post_init__(self) -> None:
        self.began = time.monotonic()
        self.trained: dict[str, list[Training]] = {}
        self.stages: dict[str, tuple[Training, str]] = {}  # what has been trained or read, by its settings
        self.evaluated: dict[str, TaskEvaluation] = {}
        self.model = ""  # that was evaluated last

    def through(self, seed: int) -> bool:
        """Every arm at every learning rate; False where the time was up."""
        return all(self.trial(label, rate, seed) for label in self.config.ways for rate in self.config.learning_rates)

    def trial(self, label: str, rate: float, seed: int) -> bool:
        """Trains and evaluates, unless it is done or the time is up; whether it is done."""
        way, name = self.config.ways[label], self.name(label, rate, seed)
        folder = self.config.output / "trials" / name
        if not all(path.is_file() for path in self.records_of(folder)):
            minutes = self.config.minutes
            if minutes is not None and time.monotonic() - self.began > 60 * minutes:
                return False
            self.progress.say(name)
        model, trainings = way.start, []
        for number, stage in enumerate(way.stages):
            last = number == len(way.stages) - 1
            floor = min(stage.training.learning_rate_floor, rate) if last else rate
            training = replace(stage.training, learning_rate=rate, learning_rate_floor=floor)
            record, model = self.stage(replace(stage, training=training), model, seed, folder / f"stage-{number}")
            trainings.append(record)
        assert model is not None, f"{label} has neither a stage nor a start"
        self.trained[name] = trainings
        parts = []
        for number, path in enumerate(self.records_of(folder)):
            asked = in_folder(replace(self.config.evaluations[number], model=model), folder / f"evaluation-{number}")
            if not path.is_file():
                evaluate(asked, self.progress)
            parts.append(load_record(path))
        self.evaluated[name], self.model = _joined(parts), model
        return True

    def records_of(self, folder: Path) -> list[Path]:
        """Where a trial's evaluations are written."""
        return [
            folder / f"evaluation-{number}" / "records" / f"evaluation-{evaluation.task[0]}.json"
            for number, evaluation in enumerate(self.config.evaluations)
        ]

    def stage(self, stage: TrainConfig, model: str | None, seed: int, folder: Path) -> tuple[Training, str]:
        """The record of a training, and its model."""
        start = model or stage.start
        config = replace(
            stage,
            start=start,
            model=stage.model if start is None else TrainConfig().model,
            runtime=replace(stage.runtime, seed=seed),
        )
        settings = repr(config)
        if settings not in self.stages:
            path = folder / "records" / f"training-{SCRATCH if start is None else FINETUNED}.json"
            asked = in_folder(config, folder)
            if not path.is_file():
                train(asked, self.progress)
            record = load_record(path)
            self.stages[settings] = record, str(folder / record.model_folder)
        return self.stages[settings]

    def name(self, label: str, rate: float, seed: int) -> str:
        """Of a trial's folder; where nothing is trained there is one for all."""
        return f"{label}/rate-{rate:g}/seed-{seed}" if self.config.ways[label].stages else label

    def record(self, seeds: tuple[int, ...]) -> Sweep:
        """The table over the seeds that every arm is through with."""
        config = self.config
        trials = {}
        for label, way in config.ways.items():
            names = [[self.name(label, rate, seed) for seed in seeds] for rate in config.learning_rates]
            trials[label] = Trials(
                words=way.words,
                evaluations=[[self.evaluated[name] for name in of_rate] for of_rate in names],
                losses=np.array(
                    [
                        [self.trained[name][-1].final_loss if self.trained[name] else np.nan for name in of_rate]
                        for of_rate in names
                    ]
                ),
            )
        words, elements = self.state()
        return over_seeds(
            trials,
            learned=config.learned,
            learning_rates=config.learning_rates,
            seeds=seeds,
            state=words,
            state_elements=elements,
            settings=config.settings,
            seconds={
                name: evaluation.seconds + sum(training.seconds for training in self.trained[name])
                for name, evaluation in self.evaluated.items()
            },
        )

    def state(self) -> tuple[str, int]:
        """The size of the recurrent state, in words and numbers a row."""
        spec = open_checkpoint(self.model, self.config.evaluations[0].runtime).model.state_spec
        leaves = [leaf for leaf in spec.leaves if leaf.role == "recurrent"]
        elements = sum(int(np.prod(leaf.shape)) for leaf in leaves)
        shape = " x ".join(map(str, leaves[0].shape))
        return f"{len(leaves)} layers of {shape} = {elements:,} numbers a row", elements


def _joined(parts: list[TaskEvaluation]) -> TaskEvaluation:
    """One evaluation of all the cells."""
    return replace(
        parts[0],
        cells=tuple(cell for part in parts for cell in part.cells),
        seconds=sum(part.seconds for part in parts),
    )
