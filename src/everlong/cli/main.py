"""`everlong VERB`: parses flags, runs the verb, turns errors into one line and an exit code.

Exit codes: 0 done; 1 a finding; 2 bad input; 3 the run had to stop; 130 interrupted and saved.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from typing import Annotated, Any

import tyro

from everlong import launch
from everlong.cli import convert, diagnose, doctor, evaluate, generate, repair, report, train
from everlong.errors import EverlongError, RunInterrupted
from everlong.workflows.config import (
    ConvertConfig,
    DiagnoseConfig,
    DoctorConfig,
    EvaluateConfig,
    GenerateConfig,
    RepairConfig,
    ReportConfig,
    TrainConfig,
)

VERBS = {
    ConvertConfig: convert.run,
    DiagnoseConfig: diagnose.run,
    DoctorConfig: doctor.run,
    EvaluateConfig: evaluate.run,
    GenerateConfig: generate.run,
    RepairConfig: repair.run,
    ReportConfig: report.run,
    TrainConfig: train.run,
}
Verb = (
    Annotated[RepairConfig, tyro.conf.subcommand("repair")]
    | Annotated[DiagnoseConfig, tyro.conf.subcommand("diagnose")]
    | Annotated[TrainConfig, tyro.conf.subcommand("train")]
    | Annotated[DoctorConfig, tyro.conf.subcommand("doctor")]
    | Annotated[ConvertConfig, tyro.conf.subcommand("convert")]
    | Annotated[EvaluateConfig, tyro.conf.subcommand("evaluate")]
    | Annotated[GenerateConfig, tyro.conf.subcommand("generate")]
    | Annotated[ReportConfig, tyro.conf.subcommand("report")]
)
DESCRIPTION = """How far can your recurrent language model really read? Diagnose it, repair it with a few hundred cheap
short-context steps, and prove the repair. `everlong repair` with nothing more shows it all on a small bundled model."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a verb; returns the exit code."""
    # Before torch is imported. OpenMP's threads spin while they wait for each other, and where another process has one
    # of the cores each wait costs a time slice: a step beside one busy core took 4 s, with passive waiting 0.33 s.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        config: Any = tyro.cli(
            Verb,
            prog="everlong",
            description=DESCRIPTION,
            args=arguments,
            config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagConversionOff),
        )
        return _run(config)
    except EverlongError as error:
        if _speaks():  # of several processes all stop with this error
            print(f"everlong: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("everlong: interrupted", file=sys.stderr)
        return RunInterrupted.exit_code
    except BrokenPipeError:  # the reader of our output has gone (`| head`); nothing is left to be said to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _speaks() -> bool:
    try:
        return launch.is_main()
    except EverlongError:  # of what was started wrongly every process says so
        return True


def _run(config: Any) -> int:
    """Runs a verb; of several processes that torchrun has started, only the first prints."""
    verb = VERBS[type(config)]
    if launch.process_count() == 1:
        return verb(config)
    if type(config) not in (DiagnoseConfig, RepairConfig, TrainConfig):
        raise EverlongError(f"torchrun started {launch.process_count()} processes, and this verb works in one")
    with nullcontext() if launch.is_main() else redirect_stdout(StringIO()):
        return verb(config)
