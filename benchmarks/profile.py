"""`python -m benchmarks.profile ARCHITECTURE`: the share of time of each op, in a training step and in evaluation."""

import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

Architecture = Annotated[Literal["gla", "mamba1", "mamba2", "rwkv6"], tyro.conf.Positional]
GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("optimizer", ("optimizer: ", "_foreach_", "Optimizer", "linalg_vector_norm")),
    (
        "matrix products",
        ("mkldnn::_linear", "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::matmul", "aten::linear"),
    ),
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
    batch: int = 4
    """Rows of 512 tokens of a training step."""


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

    for name, work in (
        ("training step", shapes.TrainingStep(config, rows=settings.batch)),
        ("evaluation of 2,048 tokens", evaluate),
    ):
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

    Of each call the fastest of the steps counts, so that what else the machine does does not look like ours. Our Numba
    kernels, which run too long for that, go by the CPU time of the thread that calls them.
    """
    from torch.profiler import ProfilerActivity, profile

    for _ in range(2):
        work()
    fastest: dict[tuple[str, int], float] = {}  # by op, and its how-manieth call in a step
    for _ in range(steps):
        with kernels_timed() as calls, profile(activities=[ProfilerActivity.CPU]) as profiler:
            work()
        events: Any = profiler.events()
        calls += [(label(event), event.self_cpu_time_total * 1e-6) for event in events if not runs_kernel(event.name)]
        count: Counter[str] = Counter()
        for op, seconds in calls:
            call = op, count[op]
            count[op] += 1
            fastest[call] = min(seconds, fastest.get(call, math.inf))
    found: dict[str, float] = defaultdict(float)
    for (op, _), seconds in fastest.items():
        found[op] += seconds
    return dict(found)


@contextmanager
def kernels_timed() -> Iterator[list[tuple[str, float]]]:
    """Within it, each kernel's op with the CPU time of this thread is added to the list, in order."""
    import everlong.ops

    calls: list[tuple[str, float]] = []
    ops = sorted(path.parent.name for path in Path(everlong.ops.__file__ or "").parent.glob("*/cpu.py"))
    modules = [import_module(f"everlong.ops.{op}.cpu") for op in ops]
    originals = [module.run_in_threads for module in modules]

    def timed(op: str, run: Callable[..., None]) -> Callable[..., None]:
        def run_timed(*arguments: Any) -> None:
            start = time.thread_time()
            run(*arguments)
            calls.append((f"kernel: {op}", time.thread_time() - start))

        return run_timed

    for op, module, run in zip(ops, modules, originals, strict=True):
        setattr(module, "run_in_threads", timed(op, run))  # noqa: B010 - a module's attribute is not known to types
    try:
        yield calls
    finally:
        for module, run in zip(modules, originals, strict=True):
            setattr(module, "run_in_threads", run)  # noqa: B010


def runs_kernel(name: str) -> bool:
    """Whether an op is an autograd function of ours around a kernel, whose wall clock is not wanted."""
    own = name.rsplit(" ", 1)[-1].removesuffix("Backward")
    return own in ("_Convolution", "_Interpolation", "_Norm", "_Recurrence", "_Scan")


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
    if op.startswith("kernel: "):
        return op
    for name, parts in GROUPS:
        if any(part in op for part in parts):
            return name
    if op.startswith("aten::"):
        return "elementwise and sums"
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
