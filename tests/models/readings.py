"""How a model is read in the contract suites, all that comes of it, and how close it must be."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor

from everlong.models.language_model import LanguageModel
from everlong.state import RecurrentState

from .tiny import names, objective, with_gradients

ARCHITECTURE_NAMES = names()
EXACT: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-10}
SINGLE: dict[str, Any] = {"rtol": 2e-4, "atol": 5e-5}
SETTINGS = [
    pytest.param("chunked", torch.float64, EXACT, id="chunked-float64"),
    pytest.param("reference", torch.float64, EXACT, id="reference-float64"),
    pytest.param("chunked", torch.float32, SINGLE, id="chunked-float32"),
    pytest.param("reference", torch.float32, SINGLE, id="reference-float32"),
    pytest.param("auto", torch.float32, SINGLE, id="auto-float32"),
]
settings = pytest.mark.parametrize(("backend", "dtype", "close"), SETTINGS)


def read(
    model: LanguageModel, pieces: Iterable[Tensor], state: RecurrentState | None, resets: Iterable[Tensor] | None = None
) -> tuple[Tensor, RecurrentState]:
    """Reads pieces one after the other with the carried state."""
    pieces = list(pieces)
    logits = []
    for piece, reset in zip(pieces, resets or [None] * len(pieces), strict=True):
        output = model(piece, state, resets=reset)
        logits.append(output.logits)
        state = output.state
    assert state is not None
    return torch.cat(logits, dim=1), state


def everything(
    model: LanguageModel, pieces: Iterable[Tensor], state: RecurrentState, resets: Iterable[Tensor] | None = None
) -> dict[str, Tensor]:
    """Logits, final state, and the gradients of an objective in both, to every parameter and the initial state."""
    state = with_gradients(state)
    model.zero_grad()
    logits, final = read(model, pieces, state, resets)
    objective(logits, final).backward()
    found = {"logits": logits.detach()}
    found |= {f"final {leaf.path}": tensor.detach() for leaf, tensor in final.items()}
    found |= parameter_gradients(model)
    return found | {f"gradient of initial {leaf.path}": gradient(tensor) for leaf, tensor in state.items()}


def parameter_gradients(model: LanguageModel) -> dict[str, Tensor]:
    return {f"gradient of {name}": gradient(parameter) for name, parameter in model.named_parameters()}


def gradient(tensor: Tensor) -> Tensor:
    assert tensor.grad is not None
    return tensor.grad.clone()


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor], close: dict[str, Any]) -> None:
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        scale = max(1.0, tensor.abs().max().item())
        torch.testing.assert_close(
            found[name] / scale, tensor / scale, **close, msg=lambda m, name=name: f"{name}: {m}"
        )
