"""The bundled model's recipe, `everlong train` with its defaults, from scratch."""

import json
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.measure import Measurement, Spread
from benchmarks.settings import Settings
from everlong.progress import Progress
from everlong.workflows.config import RuntimeConfig, TrainConfig
from everlong.workflows.train import train

SHORT = 100  # steps of the shortened run
FIRST = 10  # of them not counted


def bundled(settings: Settings) -> Measurement:
    """Minutes of the whole recipe, opening of the text and saving included; projected unless --full."""
    default = TrainConfig()
    steps = default.training.steps
    done = steps if settings.full else SHORT
    with tempfile.TemporaryDirectory(prefix="everlong-benchmark-") as folder:
        output = Path(folder) / "run"
        config = replace(
            default,
            training=replace(default.training, steps=done),
            runtime=RuntimeConfig(output=str(output)),
        )
        start = time.perf_counter()
        record, _ = train(config, Progress(Console(quiet=True)))
        whole = time.perf_counter() - start
        lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    each = np.diff([line["seconds"] for line in lines])[FIRST:]
    parts = [float(part.mean()) for part in np.array_split(each, settings.repeats)]
    tokens = record.scored_tokens // done
    rate = f"{tokens / np.median(parts):,.0f} tokens a second"
    if settings.full:
        values, what = (whole / 60,), f"all {steps} steps run"
    else:
        values = tuple((whole + (steps - done) * part) / 60 for part in parts)
        what = f"EXTRAPOLATED to {steps} steps of {tokens} tokens from {done}; --full runs them all"
    return Measurement(figure=Spread(values=values), seconds={"a step": tuple(parts)}, note=f"{rate}; {what}")
