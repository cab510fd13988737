"""`python -m benchmarks.profile ARCHITECTURE`: the share of time of each op, in a training step and in evaluation."""

import os
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

Architecture = Annotated[Literal["gla", "mamba1", "mamba2", "rwkv6"], tyro.conf.Positional]
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("optimizer", ("optimizer: ", "_foreach_", "Optimizer", "linalg_vector_norm")),
    ("matrix products", ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::matmul", "aten::linear")),
    ("convolution", ("conv",)),
    ("loss", ("log_softmax", "nll_loss", "cross_entropy")),
    ("norms", ("layer_norm", "rms_norm", "aten::rsqrt", "aten::pow", "aten::mean")),
    (
        "copies and layout",
        ("aten::copy_", "aten::cat", "aten::clone", "aten::contiguous", "aten::fill_", "aten::zero_"),
    ),
    ("embedding", ("embedding", "aten::index")),
    ("allocation and views", ("aten::empty", "aten::view", "aten::as_strided", "aten::slice", "aten::select")),
)
"""The first group of which a part of the op's name stands in it; for names outside aten see ``group``."""


@dataclass(frozen=True, kw_only=True)
class ProfileSettings:
    """The share of time of each op, in training steps and in evaluation, at the tiny shape."""

    architecture: Architecture
    steps: int = 5
    """Steps that are watched, after two that are not."""
    threads: int | None = None
    """Default: one a processor."""
    rows: int = 12
    """Ops that are listed; the rest is one line."""


def main(settings: ProfileSettings) -> None:
    """Prints four tables in Markdown: groups and ops, of training and of evaluation."""
    threads = settings.threads or os.cpu_count() or 1
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    from benchmarks import shapes
    from everlong.reading import stream

    torch.set_num_threads(threads)
    config = shapes.TINY[settings.architecture]
    model = shapes.model(config, perturbed=True).eval()
    row = shapes.tokens(1, 2048)

    def evaluate() -> None:
        with torch.no_grad():
            for _ in stream(model, row):
                pass

    for name, work in (("training step", shapes.TrainingStep(config)), ("evaluation of 2,048 tokens", evaluate)):
        found = watch(work, settings.steps)
        total = sum(found.values())
        print(f"\n{settings.architecture}, {name}: {1e3 * total:.1f} ms on {threads} threads\n")
        groups: dict[str, float] = defaultdict(float)
        for op, seconds in found.items():
            groups[group(op)] += seconds
        print(shares(groups, len(groups)))
        print("\n" + shares(found, settings.rows))


def watch(work: Callable[[], None], steps: int) -> dict[str, float]:
    """Seconds a step of each op itself, without the ops that it calls, on the thread that calls it.

    A Numba kernel is the own time of the autograd function that runs it: our other threads work while that one does.
    """
    from torch.profiler import ProfilerActivity, profile

    for _ in range(2):
        work()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(steps):
            work()
    found: dict[str, float] = defaultdict(float)
    events: Any = profiler.events()
    for event in events:
        found[label(event)] += event.self_cpu_time_total * 1e-6 / steps
    return dict(found)


def label(event: Any) -> str:
    """The op's name, marked where the optimizer calls it; a node of the backward pass goes by its function's name."""
    name, caller = event.name.removeprefix("autograd::engine::evaluate_function: "), event.cpu_parent
    while caller is not None:
        if caller.name.startswith("Optimizer.step"):
            return f"optimizer: {name}"
        caller = caller.cpu_parent
    return name


def group(op: str) -> str:
    """What kind of work an op is."""
    for name, parts in GROUPS:
        if any(part in op for part in parts):
            return name
    if op.startswith("aten::"):
        return "elementwise and sums"
    if op.startswith("_") or op.endswith("Backward"):
        return "kernels of ours (Numba)"
    return "calls"


def shares(seconds: dict[str, float], rows: int) -> str:
    """A table in Markdown, largest first."""
    total = sum(seconds.values())
    ranked = sorted(seconds.items(), key=lambda item: -item[1])
    listed, rest = ranked[:rows], sum(value for _, value in ranked[rows:])
    listed += [("the rest", rest)] if rest else []
    lines = [f"| {name} | {1e3 * value:.2f} | {100 * value / total:.1f} % |" for name, value in listed]
    return "\n".join(["| op | ms | share |", "|---|---|---|", *lines])


if __name__ == "__main__":
    main(tyro.cli(ProfileSettings))
