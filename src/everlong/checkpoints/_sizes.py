"""Sizes are read from the weights and checked against the configuration; both numbers are named where they differ."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from everlong.errors import EverlongError
from everlong.models.config import GLAConfig, LanguageModelConfig, Mamba1Config, Mamba2Config, RWKV6Config

Shapes = Mapping[str, tuple[int, ...]]
Size = tuple[str, int, str, int]
"""A field of the configuration, the size that it stands for, the tensor that shows it, the size found there."""

EMBEDDING = "backbone.embedding.weight"
FIRST_MIXER = "backbone.layers.0.mixer."
FIRST_MLP = "backbone.layers.0.mlp."


def _mamba1(config: Any, shapes: Shapes) -> Iterator[Size]:
    assert isinstance(config, Mamba1Config)
    yield from _present(
        shapes,
        ("expand", config.d_inner, f"{FIRST_MIXER}A_log", 0),
        ("d_state", config.d_state, f"{FIRST_MIXER}A_log", -1),
        ("dt_rank", config.time_step_rank, f"{FIRST_MIXER}dt_proj.weight", -1),
        ("d_conv", config.d_conv, f"{FIRST_MIXER}conv1d.weight", -1),
    )


def _mamba2(config: Any, shapes: Shapes) -> Iterator[Size]:
    assert isinstance(config, Mamba2Config)
    channels = config.d_inner + 2 * config.ngroups * config.d_state
    yield from _present(
        shapes,
        ("expand", config.d_inner, f"{FIRST_MIXER}norm.weight", 0),
        ("headdim", config.nheads, f"{FIRST_MIXER}A_log", 0),
        ("d_conv", config.d_conv, f"{FIRST_MIXER}conv1d.weight", -1),
        ("d_state", channels, f"{FIRST_MIXER}conv1d.weight", 0),
    )


def _gla(config: Any, shapes: Shapes) -> Iterator[Size]:
    assert isinstance(config, GLAConfig)
    heads = config.num_heads
    yield from _present(
        shapes,
        ("expand_k", config.key_width, f"{FIRST_MIXER}q_proj.weight", 0),
        ("expand_v", config.value_width, f"{FIRST_MIXER}v_proj.weight", 0),
        ("num_heads", config.value_width // heads, f"{FIRST_MIXER}g_norm.weight", 0),
        ("gate_low_rank_dim", config.gate_low_rank_dim, f"{FIRST_MIXER}gk_proj.0.weight", 0),
        ("conv_size", config.conv_size, f"{FIRST_MIXER}q_conv1d.weight", -1),
        (_mlp_field(config), config.mlp_width, f"{FIRST_MLP}gate_proj.weight", 0),
    )


def _rwkv6(config: Any, shapes: Shapes) -> Iterator[Size]:
    assert isinstance(config, RWKV6Config)
    yield from _present(
        shapes,
        ("expand_k", config.key_width, f"{FIRST_MIXER}receptance.weight", 0),
        ("expand_v", config.value_width, f"{FIRST_MIXER}value.weight", 0),
        ("headdim", config.headdim, f"{FIRST_MIXER}time_faaaa", -1),
        ("proj_low_rank_dim", 5 * config.proj_low_rank_dim, f"{FIRST_MIXER}time_maa_w1", -1),
        ("gate_low_rank_dim", config.gate_low_rank_dim, f"{FIRST_MIXER}time_decay_w1", -1),
        (_mlp_field(config), config.mlp_width, f"{FIRST_MLP}key.weight", 0),
    )


def _mlp_field(config: GLAConfig | RWKV6Config) -> str:
    """Which field the width of the MLP comes from."""
    return "intermediate_size" if config.intermediate_size else "hidden_ratio"


def _present(shapes: Shapes, *wanted: tuple[str, int, str, int]) -> Iterator[Size]:
    """Sizes by (field, size stated, tensor, axis) of the tensors that are there."""
    for field, stated, tensor, axis in wanted:
        if shapes.get(tensor):
            yield field, stated, tensor, shapes[tensor][axis]


MIXER_SIZES: dict[str, Callable[[Any, Shapes], Iterator[Size]]] = {
    "gla": _gla,
    "mamba1": _mamba1,
    "mamba2": _mamba2,
    "rwkv6": _rwkv6,
}


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
