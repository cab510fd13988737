"""What carrying a state costs: in training, in single steps far into a text, and over a row of a million tokens."""

import json
import os
import subprocess
import sys

import torch

from benchmarks import shapes
from benchmarks.contracts import ROOT
from benchmarks.measure import Measurement, NotAvailable, Spread, Work, compare
from benchmarks.settings import Settings
from everlong.models.language_model import LanguageModel
from everlong.reading import stream
from everlong.state import RecurrentState

NEAR, FAR = 100, 100_000  # tokens read before the single steps
STEPS = 50  # single steps a sample


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


def effective_remembrance(settings: Settings) -> Measurement:
    """How many times faster than each suffix alone."""
    raise NotAvailable("the measure of effective remembrance is not in the package yet")


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
