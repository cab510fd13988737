"""A training step against transformers', against its matrix products alone, and in bf16 against fp32."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks import shapes
from benchmarks.measure import Measurement, Work, compare, in_turns, measurement
from benchmarks.peers import hf
from benchmarks.settings import Settings
from everlong.models.config import LanguageModelConfig
from everlong.models.language_model import LanguageModel

Product = Callable[[Tensor, Tensor], Tensor]
"""A B' of A [M, K] and B [N, K]."""
LIBRARIES: dict[str, Product] = {"torch.mm": lambda a, b: torch.mm(a, b.t())}
if hasattr(torch.ops.mkldnn, "_linear_pointwise"):  # on some processors more than twice as fast as torch.mm
    LIBRARIES["oneDNN"] = lambda a, b: torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")
LOW_RANK = ("time_maa_w1", "time_maa_w2", "time_decay_w1", "time_decay_w2")  # RWKV-6's matrices [.., in, out]


def against_transformers(settings: Settings, architecture: str, **theirs: object) -> Measurement:
    """How many times faster our step is than transformers'."""
    peer = hf.trainer(architecture, **theirs)
    try:
        works: dict[str, Work] = {
            "ours": shapes.TrainingStep(shapes.TINY[architecture]),
            "transformers": lambda: peer.ask("step"),
        }
        return compare(works, settings.repeats, over="transformers", under="ours", note=_note(shapes.ROWS))
    finally:
        peer.close()


def against_products(settings: Settings, config: LanguageModelConfig, rows: int = shapes.ROWS) -> Measurement:
    """How many times the cost of its matrix products, forward and backward, a step has; by the fastest library."""
    model, count = shapes.model(config), rows * shapes.LENGTH
    floors: dict[str, Work] = {name: products(model, count, library) for name, library in LIBRARIES.items()}
    seconds = in_turns({"step": shapes.TrainingStep(config, rows=rows), **floors}, settings.repeats)
    fastest = min(floors, key=lambda name: min(seconds[name]))
    others = ", ".join(
        f"by {name} {measurement(seconds, over='step', under=name).figure.median:.3g}x"
        for name in floors
        if name != fastest
    )
    note = f"{_note(rows)}; products by {fastest}, the fastest here{'; ' * bool(others)}{others}"
    return measurement(seconds, over="step", under=fastest, note=note)


def bf16_against_fp32(settings: Settings) -> Measurement:
    """How many times faster a step with bf16 products is; the note has the losses after the same steps of both."""
    steps = {
        name: shapes.TrainingStep(shapes.TINY["mamba2"], learning_rate=1e-3, mixed_precision=mixed)
        for name, mixed in (("float32", False), ("bfloat16", True))
    }
    found = compare(steps, settings.repeats, over="float32", under="bfloat16")
    losses = {name: step.losses for name, step in steps.items()}
    count = min(map(len, losses.values())) - 1
    apart = max(abs(a - b) for a, b in zip(*losses.values(), strict=False))
    words = ", ".join(f"{name} {values[count]:.4f}" for name, values in losses.items())
    note = f"{_note(shapes.ROWS)}; loss from {losses['float32'][0]:.4f}, after {count} steps on one batch {words}"
    return replace(found, note=f"{note}, never more than {apart:.4f} apart")


def products(model: LanguageModel, count: int, library: Product) -> Work:
    """The products of a model's weights with the activations of ``count`` tokens, forward and backward, and no more.

    Each weight [out, in] is met three times: Y = X W', dX = dY W, dW = dY' X.
    """
    operands = [
        (torch.randn(count, into), torch.randn(out, into), torch.randn(count, out))
        for out, into in weight_shapes(model)
    ]

    def work() -> None:
        for x, w, _ in operands:
            library(x, w)
        for x, w, dy in reversed(operands):
            library(dy, w.t())
            if w.shape[0] > w.shape[1]:  # with the longer axis last, which is the faster of the two
                library(x.t(), dy.t())
            else:
                library(dy.t(), x.t())

    return work


def weight_shapes(model: LanguageModel) -> list[tuple[int, int]]:
    """(out, in) of each matrix that every token is multiplied with."""
    linears = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    found = [(linear.out_features, linear.in_features) for linear in linears]
    for name, parameter in model.named_parameters():
        if name.rsplit(".", 1)[-1] in LOW_RANK:
            into, out = parameter.shape[-2:]
            found += [(out, into)] * (parameter.numel() // (into * out))
    return found


def _note(rows: int) -> str:
    return f"{rows} rows of {shapes.LENGTH} tokens"
