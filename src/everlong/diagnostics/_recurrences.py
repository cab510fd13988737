"""A model's recurrences as the measures see them: states by head, and what goes in and out, by forward hook."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jaxtyping import Float
from torch import Tensor

from everlong.models.language_model import LanguageModel
from everlong.ops.backends import Recurrence
from everlong.state import RecurrentState


def matrices(state: RecurrentState) -> list[tuple[int, Float[Tensor, "B H K V"]]]:
    """Layer and recurrent leaf, a matrix a head; Mamba-1's channels are heads whose N states are one column."""
    return [
        (leaf.layer, tensor.reshape(*tensor.shape[:3], -1))
        for leaf, tensor in state.items()
        if leaf.role == "recurrent"
    ]


@contextmanager
def watching(model: LanguageModel, see: Callable[[int, dict[str, Any], tuple[Tensor, Tensor]], None]) -> Iterator[None]:
    """Shows every call of a layer's recurrence: ``see(layer, its named inputs, (outputs, final state))``."""

    def hook_of(layer: int):
        return lambda module, args, inputs, output: see(layer, inputs, output)

    handles = [
        module.register_forward_hook(hook_of(layer), with_kwargs=True)
        for layer, block in enumerate(model.backbone.blocks)
        for module in block.modules()
        if isinstance(module, Recurrence)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
