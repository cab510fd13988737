"""Where a number that is not finite stands: the first layer on the way, in words."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from everlong.state import StateSpec
from everlong.training.processes import Processes


def place_of_nonfinite(
    loss: float, squares: Sequence[float], spec: StateSpec, model: nn.Module, processes: Processes
) -> str:
    """Names what is not finite first: on the way forward a state leaf, else on the way back a gradient.

    A layer whose input is not finite has a final state that is not, so the first such leaf stands in or just after the
    layer where it began. All processes ask together.

    Args:
        loss: of the whole batch.
        squares: the sum of squares of each leaf of the final states.
        spec: names the leaves.
        model: with the gradients of the step, not clipped.
        processes: the gradients are sharded over, perhaps.
    """
    weights = _not_finite({name: parameter.detach() for name, parameter in model.named_parameters()}, processes)
    if weights:
        return f"the weight {weights[0]} is not finite"
    for leaf, value in zip(spec.leaves, squares, strict=True):
        if not math.isfinite(value):
            return f"first in the final state's leaf {leaf.path} ({leaf.role}), so in layer {leaf.layer} or its input"
    if not math.isfinite(loss):
        return "after the last layer: in the final norm, the head or the loss, for all final states are finite"
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    wrong = _not_finite(gradients, processes)
    if wrong:
        return f"first on the way back in the gradient of {wrong[-1]}, and in {len(wrong)} of {len(gradients)} in all"
    return "every gradient is finite by itself, but their norm overflows"


def _not_finite(tensors: dict[str, Tensor], processes: Processes) -> list[str]:
    """The names of those that hold something not finite on any process, in the model's order."""
    own = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors.values()]
    flags = torch.stack([(~torch.isfinite(tensor)).any() for tensor in own]).int()
    found = processes.sum(flags).tolist()
    return [name for name, flag in zip(tensors, found, strict=True) if flag]
