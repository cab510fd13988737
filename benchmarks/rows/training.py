"""A training step against transformers', against its matrix products alone, and in bf16 against fp32."""

import torch

from benchmarks import shapes
from benchmarks.measure import Measurement, NotAvailable, Work, compare
from benchmarks.peers import hf
from benchmarks.settings import Settings
from everlong.models.config import LanguageModelConfig
from everlong.models.language_model import LanguageModel

LOW_RANK = ("time_maa_w1", "time_maa_w2", "time_decay_w1", "time_decay_w2")  # RWKV-6's matrices [.., in, out]


def against_transformers(settings: Settings, architecture: str, **theirs: object) -> Measurement:
    """How many times faster our step is than transformers'."""
    works: dict[str, Work] = {
        "ours": shapes.training_step(shapes.TINY[architecture]),
        "transformers": hf.training_step(architecture, **theirs),
    }
    return compare(works, settings.repeats, over="transformers", under="ours", note=_note(shapes.ROWS))


def against_products(settings: Settings, config: LanguageModelConfig, rows: int = shapes.ROWS) -> Measurement:
    """How many times the cost of its matrix products, forward and backward, a step has."""
    works: dict[str, Work] = {
        "step": shapes.training_step(config, rows=rows),
        "products": products(shapes.model(config), rows * shapes.LENGTH),
    }
    return compare(works, settings.repeats, over="step", under="products", note=_note(rows))


def bf16_against_fp32(settings: Settings) -> Measurement:
    """How many times faster a step with bf16 products is."""
    raise NotAvailable("the training loop has no setting for bf16 products")


def products(model: LanguageModel, count: int) -> Work:
    """The products of a model's weights with the activations of ``count`` tokens, forward and backward, and no more.

    Each weight [out, in] is met three times: Y = X W', dX = dY W, dW = dY' X. Operands and results are there before the
    clock starts, so this is a floor.
    """
    operands = []
    for out, into in weight_shapes(model):
        x, w, dy = torch.randn(count, into), torch.randn(out, into), torch.randn(count, out)
        operands.append((x, w, dy, torch.empty(count, out), torch.empty(count, into), torch.empty(out, into)))

    def work() -> None:
        for x, w, _, y, _, _ in operands:
            torch.mm(x, w.t(), out=y)
        for x, w, dy, _, dx, dw in reversed(operands):
            torch.mm(dy, w, out=dx)
            torch.mm(dy.t(), x, out=dw)

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
