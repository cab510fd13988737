"""Sizes are read from the weights and checked against the configuration; both numbers are named where they differ."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from everlong.errors import EverlongError
from everlong.models.config import LanguageModelConfig, Mamba1Config, Mamba2Config

Shapes = Mapping[str, tuple[int, ...]]
Size = tuple[str, int, str, int]
"""A field of the configuration, the size that it stands for, the tensor that shows it, the size found there."""

EMBEDDING = "backbone.embedding.weight"
FIRST_MIXER = "backbone.layers.0.mixer."


def _mamba1(config: Any, shapes: Shapes) -> Iterator[Size]:
    assert isinstance(config, Mamba1Config)
    decays, steps, convolution = (FIRST_MIXER + name for name in ("A_log", "dt_proj.weight", "conv1d.weight"))
    if decays in shapes:
        yield "expand", config.d_inner, decays, shapes[decays][0]
        yield "d_state", config.d_state, decays, shapes[decays][-1]
    if steps in shapes:
        yield "dt_rank", config.time_step_rank, steps, shapes[steps][-1]
    if convolution in shapes:
        yield "d_conv", config.d_conv, convolution, shapes[convolution][-1]


def _mamba2(config: Any, shapes: Shapes) -> Iterator[Size]:
    assert isinstance(config, Mamba2Config)
    norm, decays, convolution = (FIRST_MIXER + name for name in ("norm.weight", "A_log", "conv1d.weight"))
    if norm in shapes:
        yield "expand", config.d_inner, norm, shapes[norm][0]
    if decays in shapes:
        yield "headdim", config.nheads, decays, shapes[decays][0]
    if convolution in shapes:
        yield "d_conv", config.d_conv, convolution, shapes[convolution][-1]
        yield "d_state", config.d_inner + 2 * config.ngroups * config.d_state, convolution, shapes[convolution][0]


MIXER_SIZES: dict[str, Callable[[Any, Shapes], Iterator[Size]]] = {"mamba1": _mamba1, "mamba2": _mamba2}


def check_sizes(
    config: LanguageModelConfig,
    tensors: Mapping[str, Tensor],
    *,
    config_name: str,
    field: Callable[[str], str],
    tensor: Callable[[str], str],
) -> None:
    """Checks what a configuration says against the tensors, under our names.

    Args:
        config: the configuration.
        tensors: the weights by our names.
        config_name: the configuration's file, for messages.
        field: our field names -> the file's.
        tensor: our tensor names -> the file's.

    Raises:
        EverlongError: naming both numbers.
    """
    shapes = {name: tuple(value.shape) for name, value in tensors.items()}
    found = {int(match[1]) for name in shapes if (match := re.match(r"backbone\.layers\.(\d+)\.", name))}
    layers = max(found) + 1 if found else 0
    if layers != config.n_layer:
        raise EverlongError(f"{config_name} says {field('n_layer')} {config.n_layer}, the weights hold {layers} layers")
    if len(shapes.get(EMBEDDING, ())) == 2:
        rows, width = shapes[EMBEDDING]
        if width != config.d_model:
            raise EverlongError(
                f"{config_name} says {field('d_model')} {config.d_model}, {tensor(EMBEDDING)} is {width} wide"
            )
        if rows != config.padded_vocab_size:
            padded = f" ({config.padded_vocab_size} rows when padded)" if config.pad_vocab_size_multiple > 1 else ""
            raise EverlongError(
                f"{config_name} says {field('vocab_size')} {config.vocab_size}{padded}, "
                f"{tensor(EMBEDDING)} has {rows} rows"
            )
    sizes = MIXER_SIZES.get(config.architecture)
    for name, stated, where, measured in sizes(config, shapes) if sizes else ():
        if stated != measured:
            value = getattr(config, name)
            makes = "" if value == stated else f", which makes {stated}"
            raise EverlongError(f"{config_name} says {field(name)} {value}{makes}, {tensor(where)} has {measured}")
