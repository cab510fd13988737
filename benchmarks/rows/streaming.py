"""What carrying a state costs: in training, in single steps far into a text, and over a row of a million tokens."""

import json
import os
import subprocess
import sys

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from benchmarks import shapes
from benchmarks.contracts import ROOT
from benchmarks.measure import Measurement, NotAvailable, Spread, Work, compare, in_turns, measurement
from benchmarks.settings import Settings
from everlong.data.corpus import Corpus, TokenDocument
from everlong.diagnostics._examination import examination
from everlong.diagnostics.config import MeasuresConfig
from everlong.diagnostics.effective_remembrance import DISTANCES, distances, start_grids
from everlong.diagnostics.effective_remembrance import effective_remembrance as effective_remembrance_of
from everlong.models.generation import LONGEST_PIECE
from everlong.models.language_model import LanguageModel
from everlong.progress import Progress
from everlong.reading import stream
from everlong.state import RecurrentState

NEAR, FAR = 100, 100_000  # tokens read before the single steps
STEPS = 50  # single steps a sample
REMEMBRANCE_CLOSE = 1e-5


def state_passing(settings: Settings, architecture: str) -> Measurement:
    """The cost of a step that starts from the last batch's states, over one that starts from zero."""
    works: dict[str, Work] = {
        method: shapes.TrainingStep(shapes.TINY[architecture], method=method) for method in ("state_passing", "zero")
    }
    repeats = 4 * settings.repeats  # a hundredth is to be seen
    note = f"{shapes.ROWS} rows of {shapes.LENGTH} tokens, {repeats} turns"
    return compare(works, repeats, over="state_passing", under="zero", note=note)


@torch.no_grad()
def decoding(settings: Settings, architecture: str) -> Measurement:
    """The cost of a token at position 100,000, over one at position 100; both are read in turns."""
    model = shapes.model(shapes.TINY[architecture], perturbed=True).eval()
    near = far = model.zero_state(1)
    position = 0
    for output in stream(model, shapes.tokens(1, FAR)):
        position += output.logits.shape[1]
        far = output.state
    for output in stream(model, shapes.tokens(1, NEAR)):
        near = output.state
    works = {"at 100": _single_steps(model, near), "at 100,000": _single_steps(model, far)}
    repeats = 2 * settings.repeats
    note = f"{STEPS} single tokens a sample, {repeats} turns"
    return compare(works, repeats, over="at 100,000", under="at 100", note=note)


def million_time(settings: Settings, architecture: str) -> Measurement:
    """Time of 16,384 tokens within a row of a million, over those of a row of their own, in turns along the way."""
    found = _million(architecture)
    within, alone = found["within"], found["alone"]
    ratios = tuple(a / b for a, b in zip(within, alone, strict=True))
    note = f"{found['length']:,} tokens, pairs at {', '.join(f'{p:,}' for p in found['positions'])}"
    seconds = {"within": tuple(within), "alone": tuple(alone)}
    fastest = min(within) / min(alone)
    return Measurement(figure=Spread(values=ratios), seconds=seconds, note=note, of_fastest=fastest)


def million_memory(settings: Settings, architecture: str) -> Measurement:
    """Peak memory of the process after a row of a million tokens, over that after one of 16,384."""
    found = _million(architecture)
    short, long = found["peak_short"], found["peak_long"]
    note = f"peak {short / 2**20:.1f} MiB after 16,384 tokens, {long / 2**20:.1f} MiB after {found['length']:,}"
    return Measurement(figure=Spread(values=(long / short,)), seconds={}, note=note)


@torch.no_grad()
def effective_remembrance(settings: Settings, ends: tuple[int, ...]) -> Measurement:
    """How many times faster than each suffix alone, for every T of ``ends`` and 32 starts, one document."""
    model = shapes.model(shapes.TINY["mamba2"], perturbed=True).eval()
    row, length = shapes.tokens(1, max(ends) + 2), max(ends) + 1
    examined = examination(
        model,
        Corpus((TokenDocument("random", row[0].numpy()),)),
        context=length // 4,
        length=length,
        documents=1,
        label="benchmark",
        model_name="benchmark",
        confidence=0.95,
        tolerance=0.02,
        seed=0,
        progress=Progress(Console(quiet=True)),
    )
    config = MeasuresConfig(remembrance_ends=ends)
    last: dict[str, dict[int, Tensor]] = {}
    counts: list[str] = []

    def swept() -> None:
        record = effective_remembrance_of(examined, config)
        last["swept"] = {at.end: torch.from_numpy(np.stack([at.values[d][0] for d in DISTANCES])) for at in record.ends}
        counts[:] = [f"{record.basis.tokens_read:,} tokens against {record.tokens_alone:,}"]

    def alone() -> None:
        last["alone"] = {end: _alone(model, row, end, grid) for end, grid in start_grids(ends, 32).items()}

    found = in_turns({"swept": swept, "alone": alone}, settings.repeats)
    error = max(float((last["swept"][end] - last["alone"][end]).abs().max()) for end in ends)
    if not error <= REMEMBRANCE_CLOSE:
        raise NotAvailable(f"the sweep's distances are not those of each suffix alone: {error:.1e}")
    note = f"{len(ends)} T up to {max(ends):,}; {counts[0]}; distances equal within {error:.1e}"
    return measurement(found, over="alone", under="swept", note=note)


def _alone(model: LanguageModel, row: Tensor, end: int, starts: tuple[int, ...]) -> Tensor:
    """[distances, starts]; each suffix is read by itself, piece by piece, which is faster than in one call."""
    logs = []
    for start in starts:
        state, last = None, row
        for piece in row[:, start : end + 1].split(LONGEST_PIECE, dim=1):
            output = model.advance(piece, state)
            state, last = output.state, output.logits
        logs.append(last[0, -1].double().log_softmax(-1))
    return distances(logs[0].exp(), torch.stack(logs).exp())


def _single_steps(model: LanguageModel, state: RecurrentState) -> Work:
    token = shapes.tokens(1, 1)

    def work() -> None:
        nonlocal state
        for _ in range(STEPS):
            state = model(token, state).state

    return work


_FOUND: dict[str, dict] = {}  # both rows of an architecture are of one run


def _million(architecture: str) -> dict:
    """See ``benchmarks.million``: a process of its own, so that the peak is that of the row."""
    if architecture not in _FOUND:
        command = [sys.executable, "-m", "benchmarks.million", architecture, str(torch.get_num_threads())]
        result = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=False)
        if result.returncode:
            raise RuntimeError(result.stderr)
        _FOUND[architecture] = json.loads(result.stdout)
    return _FOUND[architecture]
