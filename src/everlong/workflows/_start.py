"""The beginning of every verb that has a run folder: a new one, or one that is gone on with."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

from everlong import launch
from everlong.errors import EverlongError, RunInterrupted
from everlong.reports.page import PAGE, write_report
from everlong.runs import Run
from everlong.training.processes import Processes
from everlong.workflows._settings import Config, read_back, written

WORK = ("records", "checkpoints", "metrics.jsonl", "bases", "repairs")  # where a run keeps what it has done


@contextmanager
def start_run(verb: str, config: Config) -> Iterator[tuple[Run, Config]]:
    """Gives the run and the configuration it is to follow: with --resume, the one that the run was started with.

    Raises:
        EverlongError: --resume beside other settings, or a folder that is no run of this verb.
    """
    resume, processes = _resumed(config), Processes()
    if resume is None:
        run = _create(verb, config, processes)
        with run, refusable(run), _interruptible(run):
            yield run, config
        return
    with processes.together(lambda: Run.open(resume, verb, processes)) as run, _interruptible(run):
        yield run, read_back(run.config, type(config))


def _create(verb: str, config: Config, processes: Processes) -> Run:
    """A new run folder, made by the first process for all."""
    settings = written(config)
    made: list[Run] = []
    processes.on_main(lambda: made.append(Run.create(config.runtime.output, verb, settings, processes)))
    folder = processes.share(str(made[0].path) if made else "")
    return made[0] if made else Run(Path(folder), verb, settings, processes)


def page_of(run: Run) -> Path:
    """Writes the report of a run, once; returns its page."""
    run.crew.on_main(lambda: write_report(run))
    return run.path / PAGE


def asked(verb: str, config: Config) -> Config:
    """The configuration that a run is to follow: with --resume, the one that it was started with."""
    resume = _resumed(config)
    if resume is None:
        return config
    with Run.open(resume, verb, Processes()) as run:
        return read_back(run.config, type(config))


def _resumed(config: Config) -> str | None:
    """The run that is gone on with, if one is; other settings beside it are refused."""
    resume = config.runtime.resume
    if resume is not None and replace(config, runtime=replace(config.runtime, resume=None)) != type(config)():
        raise EverlongError(f"--resume {resume} goes on with the settings of that run; give no others beside it")
    return resume


@contextmanager
def refusable(run: Run) -> Iterator[None]:
    """Bad input found before anything was finished leaves no folder behind, so that the same command can be mended."""
    try:
        yield
    except EverlongError as error:
        begun = any(path.is_file() for name in WORK for path in (run.path / name, *(run.path / name).rglob("*")))
        if error.exit_code == EverlongError.exit_code and not begun and run.writes:
            rmtree(run.path, ignore_errors=True)
        raise


@contextmanager
def _interruptible(run: Run) -> Iterator[None]:
    """Ctrl-C or SIGTERM outside a training step: what is finished is kept, and the message says how to go on."""
    main_thread = threading.current_thread() is threading.main_thread()
    found = signal.signal(signal.SIGTERM, signal.default_int_handler) if main_thread else None
    try:
        yield
    except KeyboardInterrupt:
        raise RunInterrupted(
            f"interrupted; finished phases are kept; go on with `{launch.command(f'{run.verb} --resume {run.path}')}`"
        ) from None
    finally:
        if main_thread:
            signal.signal(signal.SIGTERM, found)
