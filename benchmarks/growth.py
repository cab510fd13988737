"""`python -m benchmarks.growth`: how the cost of a token grows with T, batch, width, layers and d_state.

One setting at a time moves away from the tiny shape; writes a table in Markdown, the figures as JSON, and a figure.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tyro

ARCHITECTURES = ("gla", "mamba1", "mamba2", "rwkv6")
AXES: dict[str, tuple[int, ...]] = {
    "T": (128, 512, 2048),
    "batch": (1, 4, 16),
    "width": (128, 256, 512),
    "layers": (2, 4, 8),
    "d_state": (16, 64, 128),
}


@dataclass(frozen=True, kw_only=True)
class GrowthSettings:
    """How the cost of a token of training grows with T, batch, width, layers and d_state."""

    architectures: tuple[str, ...] = ARCHITECTURES
    """Which to measure."""
    repeats: int = 5
    """Steps of each point, all points of an axis in turns."""
    threads: int | None = None
    """Default: one a processor."""
    output: Path = Path("runs/benchmarks/growth")
    """Stem of the files: .json, .md and .svg."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One setting away from the tiny shape, and the microseconds a token that a training step took there."""

    architecture: str
    axis: str
    value: int
    microseconds: float


def main(settings: GrowthSettings) -> None:
    """Measures, and writes the three files."""
    threads = settings.threads or os.cpu_count() or 1
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    from everlong.runs import environment, write_json

    torch.set_num_threads(threads)
    points = []
    for architecture in settings.architectures:
        for axis in AXES:
            start = time.perf_counter()
            points += measure(architecture, axis, settings.repeats)
            print(f"{architecture}, {axis}: {time.perf_counter() - start:.0f} s", flush=True)
    write_json(
        settings.output.with_suffix(".json"),
        {"environment": environment(), "threads": threads, "points": [point.__dict__ for point in points]},
    )
    settings.output.with_suffix(".md").write_text(as_markdown(points) + "\n", encoding="utf-8")
    draw(points, settings.output.with_suffix(".svg"))


def measure(architecture: str, axis: str, repeats: int) -> list[Point]:
    """The points of an axis; the fastest step of each counts, as what disturbs it only adds."""
    from benchmarks.measure import in_turns

    works = dict(steps(architecture, axis))
    seconds = in_turns({str(value): work for value, (work, _) in works.items()}, repeats)
    return [
        Point(
            architecture=architecture,
            axis=axis,
            value=value,
            microseconds=round(1e6 * min(seconds[str(value)]) / tokens, 2),
        )
        for value, (_, tokens) in works.items()
    ]


def steps(architecture: str, axis: str) -> Iterator[tuple[int, tuple[Callable[[], None], int]]]:
    """Value -> the training step there, and its tokens."""
    from benchmarks import shapes

    for value in AXES[axis]:
        config: Any = shapes.TINY[architecture]
        rows, length = shapes.ROWS, shapes.LENGTH
        if axis == "T":
            length, rows = value, max(1, rows * length // value)  # as many tokens a step
        elif axis == "batch":
            rows = value
        elif axis == "layers":
            config = replace(config, n_layer=value)
        elif axis == "width":
            heads = {"num_heads": value // 64} if architecture == "gla" else {}
            config = replace(config, d_model=value, **heads)
        else:
            config = with_states(config, value)
        yield value, (shapes.TrainingStep(config, rows=rows, length=length), rows * length)


def with_states(config: Any, value: int) -> Any:
    """Another d_state: Mamba's N, or keys a head as many heads as before have."""
    if config.architecture == "gla":
        return replace(config, expand_k=value * config.num_heads / config.d_model)
    if config.architecture == "rwkv6":
        return replace(config, expand_k=value / 64, headdim=value)
    return replace(config, d_state=value)


def as_markdown(points: list[Point]) -> str:
    """Microseconds a token, a row an axis and value."""
    names = list(dict.fromkeys(point.architecture for point in points))
    found = {(point.architecture, point.axis, point.value): point.microseconds for point in points}
    lines = [f"| | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for axis, values in AXES.items():
        for value in values:
            cells = (f"{found[name, axis, value]:.0f}" for name in names)
            lines.append(f"| {axis} {value} | {' | '.join(cells)} |")
    return "\n".join(lines)


def draw(points: list[Point], path: Path) -> None:
    """A panel an axis, a line an architecture, both scales logarithmic."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "everlong"  # the same figures give the same file
    figure = Figure(figsize=(13, 3), layout="constrained")
    for panel, axis in zip(figure.subplots(1, len(AXES), sharey=True), AXES, strict=True):
        for name in dict.fromkeys(point.architecture for point in points):
            mine = [point for point in points if (point.architecture, point.axis) == (name, axis)]
            panel.plot([p.value for p in mine], [p.microseconds for p in mine], marker="o", label=name)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log", base=2)
        panel.set_xticks(AXES[axis], [str(value) for value in AXES[axis]])
        panel.set_xlabel(axis)
        panel.grid(alpha=0.3)
    figure.axes[0].set_ylabel("training, microseconds a token")
    figure.axes[-1].legend()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    main(tyro.cli(GrowthSettings))
