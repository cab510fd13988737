"""A model's and an optimizer's tensors by name, for checkpoints; loading keeps parameter objects and ties.

Values are whole, whatever is sharded: all processes call these together, and any number of them can load.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from everlong.errors import EverlongError
from everlong.training.parallel import spread_like, whole


def model_values(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, a tied one once."""
    return {name: whole(tensor.detach()) for name, tensor in _tensors(model).items()}


def load_model(model: nn.Module, values: Mapping[str, Any], path: Path) -> None:
    """Copies values into a model.

    Raises:
        EverlongError: they are another model's; the first difference is named.
    """
    present = _tensors(model)
    for name in {**present, **values}:
        ours, theirs = (list(tensors[name].shape) if name in tensors else "absent" for tensors in (present, values))
        if ours != theirs:
            raise EverlongError(f"{path} is another model's checkpoint: {name} is {theirs} there, {ours} in this model")
    with torch.no_grad():
        for name, tensor in present.items():
            tensor.copy_(spread_like(values[name], tensor))


def optimizer_values(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's averages and counts, as "average/parameter"."""
    values = {}
    for name, _, parameter in _optimized(model, optimizer):
        values.update({f"{key}/{name}": whole(value) for key, value in optimizer.state.get(parameter, {}).items()})
    return values


def load_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer, values: Mapping[str, Any]) -> None:
    """Gives an optimizer the averages and counts that ``optimizer_values`` returned."""
    by_parameter: dict[str, dict[str, Any]] = {}
    for path, value in values.items():
        key, name = path.split("/", 1)
        by_parameter.setdefault(name, {})[key] = value
    state = {}
    for name, place, parameter in _optimized(model, optimizer):
        if name in by_parameter:
            state[place] = {
                key: spread_like(value, parameter) if value.shape == parameter.shape else value
                for key, value in by_parameter[name].items()
            }
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def _optimized(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, int, nn.Parameter]]:
    """Name, place and parameter, for all that the optimizer has."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for place, parameter in enumerate(parameters):
        yield names[parameter], place, parameter
