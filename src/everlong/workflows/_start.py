"""The beginning of every verb that has a run folder: a new one, or one that is gone on with."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shutil import rmtree

from everlong import launch
from everlong.errors import EverlongError, RunInterrupted
from everlong.reports.page import PAGE
from everlong.runs import Run
from everlong.training.config import CHANGEABLE
from everlong.training.processes import Processes
from everlong.workflows._page import write_page
from everlong.workflows._settings import Config, engine_settings, followed, given_to_engine, with_engine, written
from everlong.workflows.config import RepairConfig

WORK = ("records", "checkpoints", "metrics.jsonl", "bases", "repairs")  # where a run keeps what it has done


@contextmanager
def start_run(verb: str, config: Config, say: Callable[[str], None]) -> Iterator[tuple[Run, Config]]:
    """Gives the run and the configuration it is to follow: with --resume, the one that the run was started with.

    Settings of the engine that are given beside --resume take the place of its own, from now on.

    Args:
        verb: whose run it is.
        config: what was asked for.
        say: is told what changes, and what happens to the run folder.

    Raises:
        EverlongError: --resume beside other settings, or a folder that is no run of this verb.
    """
    resume, processes = _resumed(config), Processes()
    if resume is None:
        run = _create(verb, config, processes)
        run.say = say
        with run, refusable(run), _interruptible(run):
            yield run, config
        return
    with processes.together(lambda: Run.open(resume, verb, processes)) as run, _interruptible(run):
        run.say = say
        yield run, processes.together(lambda: _changed(run, config))


def _changed(run: Run, asked_for: Config) -> Config:
    """The configuration that a resumed run follows from now on; says and writes down what is new in it."""
    before = followed(run, type(asked_for))
    given = given_to_engine(asked_for)
    had = engine_settings(before)
    changes = {name: value for name, value in given.items() if value != had[name]}
    if not changes:
        return before
    if isinstance(before, RepairConfig) and before.is_experiment:
        raise EverlongError(
            f"{run.path} is an experiment of several repairs: give {' and '.join(map(_flag, changes))} to the one that "
            f"is to go on so, `{launch.command(f'repair --resume {run.path}/repairs/NAME')}`, then go on with this one"
        )
    if run.writes:
        run.resume_with(changes)
        words = "; ".join(f"{_flag(name)} {_told(value)}, was {_told(had[name])}" for name, value in changes.items())
        run.say(f"{run.path} goes on with {words}")
    return with_engine(before, changes)


def _create(verb: str, config: Config, processes: Processes) -> Run:
    """A new run folder, made by the first process for all."""
    settings = written(config)
    made: list[Run] = []
    processes.on_main(lambda: made.append(Run.create(config.runtime.output, verb, settings, processes)))
    folder = processes.share(str(made[0].path) if made else "")
    return made[0] if made else Run(Path(folder), verb, settings, processes)


def page_of(run: Run) -> Path:
    """Writes the report of a run, once; returns its page.

    Raises:
        RunStopped: it cannot be written (the disk is full, say); the records are all there.
    """
    run.crew.on_main(lambda: write_page(run))
    return run.path / PAGE


def asked(verb: str, config: Config) -> Config:
    """The configuration that a run is to follow: with --resume, the one that it was started with."""
    resume = _resumed(config)
    if resume is None:
        return config
    with Run.open(resume, verb, Processes()) as run:
        return followed(run, type(config))


def _resumed(config: Config) -> str | None:
    """The run that is gone on with, if one is; other settings beside it are refused, but for the engine's."""
    resume = config.runtime.resume
    if resume is None:
        return None
    default = type(config)()
    bare = with_engine(config, engine_settings(default))
    if replace(bare, runtime=replace(config.runtime, resume=None)) != default:
        engine = f", but for the engine's: {', '.join(map(_flag, CHANGEABLE))}" if engine_settings(default) else ""
        raise EverlongError(
            f"--resume {resume} goes on with the settings of that run; give no others beside it{engine}"
        )
    return resume


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _told(value: object) -> str:
    return (" ".join(map(str, value)) or "none") if isinstance(value, tuple) else str(value)


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
