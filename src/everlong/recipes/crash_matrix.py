"""The crash matrix: tiny runs are struck at given moments, resumed, and compared with one that nothing befell.

    python -m everlong.recipes.crash_matrix --output runs/crash-matrix

A run of 12 steps of state passing, with a checkpoint every 4, by one process, two and four, is met by SIGKILL, SIGTERM
and SIGINT: at moments inside a step and inside the writing of a checkpoint, each several times at different steps, and
at random times within the time of the uninterrupted run, its start included. What is left is
resumed; weights, the optimizer's averages, carried states of every process, history and metrics must be those of the
uninterrupted run, to the bit. The table says what was struck, where, how often, how many steps had to be done again,
and what was lost. Exit code 1 where anything was.
"""

import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import rmtree

import numpy as np
from rich.console import Console
from rich.table import Table

from everlong.recipes import _crashes as crashes
from everlong.recipes._command import start
from everlong.recipes._crashes import Crash
from everlong.runs import environment, write_json

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
AT_RANDOM = "at a random time"


@dataclass(frozen=True, kw_only=True)
class CrashMatrixRecipe:
    """Strikes, resumes and compares."""

    output: Path
    """Folder for the table (crash-matrix.json) and, while it works, the runs; it must not exist."""
    repeats: int = 3
    """Trials of each kind, each at a step of its own."""
    processes: tuple[int, ...] = (1, 2, 4)
    """Numbers of processes to try."""
    seed: int = 0
    """Of the steps and the random times."""


@dataclass
class Cell:
    """A row of the table: trials of one kind."""

    processes: int
    struck: str
    moment: str
    signal: str
    trials: int = 0
    steps_done_again: int = 0
    lost: int = 0


def main(recipe: CrashMatrixRecipe) -> int:
    """Runs all trials, writes down each kind as it is done, and prints the table."""
    recipe.output.mkdir(parents=True)
    draw = np.random.default_rng(recipe.seed)
    cells: list[Cell] = []
    for count in recipe.processes:
        whole = recipe.output / f"whole-{count}"
        began = time.monotonic()
        if any(crashes.run_processes(whole, count, None)):
            raise SystemExit(f"the uninterrupted run of {count} processes failed")
        duration = time.monotonic() - began
        expected = crashes.outcome(whole)
        for moment, number, rank in _kinds(count):
            struck = "the process" if count == 1 else f"rank {rank} of {count}"
            cell = Cell(count, struck, moment, number.name)
            for trial in range(recipe.repeats):
                step = int(draw.integers(0, crashes.CONFIG.steps))
                seconds = float(draw.uniform(0, duration)) if moment == AT_RANDOM else None
                crash = Crash(moment=moment, number=number, step=step, rank=rank)
                folder = recipe.output / f"trial-{count}-{len(cells)}-{trial}"
                _try(folder, crash, expected, cell, seconds)
            cells.append(cell)
            content = {"what": __doc__, "cells": [asdict(each) for each in cells], "environment": environment()}
            write_json(recipe.output / "crash-matrix.json", content)
            print(
                f"{count} processes, {moment}, {cell.signal}, {struck}: {cell.lost} lost", file=sys.stderr, flush=True
            )
    Console(width=140).print(_table(cells))
    return int(any(cell.lost for cell in cells))


def _kinds(count: int) -> Iterator[tuple[str, signal.Signals, int]]:
    for moment in (*crashes.MOMENTS, AT_RANDOM):
        ranks = range(1) if count == 1 or moment in crashes.ONLY_ON_MAIN else (0, count - 1)
        for number in SIGNALS:
            for rank in ranks:
                yield moment, number, rank


def _try(folder: Path, crash: Crash, expected: dict, cell: Cell, seconds: float | None) -> None:
    """One trial: struck, resumed, compared; the folder is kept only where something was lost."""
    crashes.run_processes(folder, cell.processes, crash, seconds)
    logged, left = crashes.steps_logged(folder), crashes.checkpoint_left(folder)
    codes = crashes.run_processes(folder, cell.processes, None)
    cell.trials += 1
    cell.steps_done_again += max(logged - left, 0)
    if any(codes) or not crashes.same(crashes.outcome(folder), expected):
        cell.lost += 1
    else:
        rmtree(folder)


def _table(cells: list[Cell]) -> Table:
    table = Table(title="Struck, resumed, and compared with the uninterrupted run, to the bit")
    for name in ("processes", "struck", "where", "signal", "trials", "steps done again", "lost"):
        table.add_column(name)
    for cell in cells:
        lost = f"{cell.lost} runs differ" if cell.lost else "nothing"
        again = f"{cell.steps_done_again}"
        table.add_row(str(cell.processes), cell.struck, cell.moment, cell.signal, str(cell.trials), again, lost)
    return table


if __name__ == "__main__":
    sys.exit(start(main, CrashMatrixRecipe))
