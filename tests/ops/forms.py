"""The forms in which the contract of every op is tested: one entry an op and way of using it, over its backends."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from everlong.ops.backends import GATED_LINEAR_ATTENTION, SELECTIVE_SCAN
from everlong.ops.gated_linear_attention.reference import gated_linear_attention
from everlong.ops.selective_scan.reference import selective_scan
from everlong.registry import Registry

from . import test_gated_linear_attention, test_selective_scan
from .contract import Inputs, Operation, servers

STRONGEST, WEAKEST = 60.0, 1e-6


@dataclass(frozen=True, kw_only=True)
class Form:
    """An op, its float64 truth, and inputs of a number of tokens whose log-decays mix both ends in every row."""

    op: Registry
    reference: Operation
    make: Callable[[int, int], Inputs]
    """Batch size, length -> inputs without resets."""
    log_decays: Callable[[Inputs], Tensor]
    """[B, T, ...]."""
    at_ends: Callable[[Inputs, int, int], None]
    """Sets the log-decays of two tokens to the strongest and to the weakest."""

    def inputs(self, batch: int, length: int) -> Inputs:
        """Both ends are met in every row that has two tokens."""
        inputs = self.make(batch, length)
        if length > 1:
            self.at_ends(inputs, length // 3, length - 1)
        return inputs


def _attention(*, per_channel: bool, bonus: bool) -> Form:
    def at_ends(inputs: Inputs, strong: int, weak: int) -> None:
        inputs["log_decay"][:, strong] = -STRONGEST
        inputs["log_decay"][:, weak] = -WEAKEST

    return Form(
        op=GATED_LINEAR_ATTENTION,
        reference=gated_linear_attention,
        make=lambda batch, length: test_gated_linear_attention.make(
            batch, length, 2, 1, 5, 3, per_channel=per_channel, bonus=bonus
        ),
        log_decays=lambda inputs: inputs["log_decay"],
        at_ends=at_ends,
    )


def _scan() -> Form:
    def at_ends(inputs: Inputs, strong: int, weak: int) -> None:
        inputs["dt"][:, strong] = -STRONGEST / inputs["A"].min()
        inputs["dt"][:, weak] = -WEAKEST / inputs["A"].max()

    return Form(
        op=SELECTIVE_SCAN,
        reference=selective_scan,
        make=lambda batch, length: test_selective_scan.make(batch, length, 5, 3),
        log_decays=lambda inputs: inputs["dt"][..., None] * inputs["A"],
        at_ends=at_ends,
    )


FORMS = {
    "attention-scalar": _attention(per_channel=False, bonus=False),
    "attention-vector-bonus": _attention(per_channel=True, bonus=True),
    "scan": _scan(),
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
every_backend = pytest.mark.parametrize(
    ("form", "backend"),
    [
        pytest.param(form, backend, id=f"{name}-{backend}")
        for name, form in FORMS.items()
        for backend in servers(form.op, torch.float32)
    ],
)
