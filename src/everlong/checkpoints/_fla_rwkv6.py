"""What is RWKV-6's own in fla's format (fla/models/rwkv6, fla/layers/rwkv6.py, utils/convert_from_rwkv6.py).

Its five interpolations come in the order r, w, k, v, g (ours and BlinkDL's: w, k, v, r, g), the fixed ones stacked, and
low-rank maps are transposed.

fla has one epsilon for all norms, BlinkDL's group norm another: 64 times as large. A group norm of values divided by
s with epsilon e is that of the values themselves with epsilon e s^2, so that ours go into fla exactly: the value
projection is divided by s = 8, a power of two, which loses nothing. "group_norm_eps" in config.json undoes it.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from everlong.errors import EverlongError
from everlong.models.config import RWKV6Config

CLASS_NAME = "RWKV6ForCausalLM"
FIELDS = {"proj_low_rank_dim": "proj_low_rank_dim", "gate_low_rank_dim": "gate_low_rank_dim"}
DEFAULTS: dict[str, Any] = {"norm_eps": 1e-5, "hidden_ratio": 3.5, "proj_low_rank_dim": 32, "gate_low_rank_dim": 64}
FIXED: dict[str, Any] = {"hidden_act": "sqrelu", "norm_first": True, "norm_bias": True, "attn": None}
ATTENTION = "model.layers.{}.attn."
MIXER = "backbone.layers.{}.mixer."
NAMES = {
    "backbone.embedding_norm.": "model.layers.0.pre_norm.",
    "backbone.layers.{}.norm2.": "model.layers.{}.ffn_norm.",
    f"{MIXER}time_maa_x": f"{ATTENTION}x_proj.0.mu",
    f"{MIXER}time_maa_w1": f"{ATTENTION}x_proj.0.linear.weight",
    f"{MIXER}time_maa_w2": f"{ATTENTION}x_proj.2.weight",
    f"{MIXER}time_maa": f"{ATTENTION}x_bias",
    f"{MIXER}time_decay": f"{ATTENTION}w_proj.linear.lora.2.bias",
    f"{MIXER}time_decay_w1": f"{ATTENTION}w_proj.linear.lora.0.weight",
    f"{MIXER}time_decay_w2": f"{ATTENTION}w_proj.linear.lora.2.weight",
    f"{MIXER}time_faaaa": f"{ATTENTION}bonus",
    f"{MIXER}receptance.": f"{ATTENTION}r_proj.linear.",
    f"{MIXER}key.": f"{ATTENTION}k_proj.linear.",
    f"{MIXER}value.": f"{ATTENTION}v_proj.linear.",
    f"{MIXER}gate.": f"{ATTENTION}g_proj.linear.",
    f"{MIXER}output.": f"{ATTENTION}o_proj.",
    f"{MIXER}ln_x.": f"{ATTENTION}g_norm.",
    "backbone.layers.{}.mlp.": "model.layers.{}.ffn.",
    "backbone.layers.{}.mlp.time_maa_k": "model.layers.{}.ffn.key.mu",
    "backbone.layers.{}.mlp.time_maa_r": "model.layers.{}.ffn.receptance.mu",
    "backbone.layers.{}.mlp.key.": "model.layers.{}.ffn.key.linear.",
    "backbone.layers.{}.mlp.receptance.": "model.layers.{}.ffn.receptance.linear.",
}
OUTWARD, INWARD = [3, 0, 1, 2, 4], [1, 2, 3, 0, 4]  # w, k, v, r, g -> r, w, k, v, g and back
STACKED = "wkvrg"


def refine(theirs: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The heads' size from their number, and the group norm's epsilon."""
    width, heads = theirs["expand_k"] * theirs["hidden_size"], theirs["num_heads"]
    if type(heads) is not int or heads < 1 or width % heads:
        raise EverlongError(f"{path}: num_heads is {heads!r}; it must divide expand_k * hidden_size = {width:g}")
    return {
        "headdim": int(width) // heads,
        "group_norm_epsilon": theirs.get("group_norm_eps", theirs["norm_eps"]),
    }


def restate(config: RWKV6Config, source: Mapping[str, Any]) -> dict[str, Any]:
    """Heads by number; the group norm's epsilon where it is not that of the other norms."""
    divisor(config)
    stated = {"num_heads": config.nheads}
    other = config.group_norm_epsilon != config.norm_epsilon or "group_norm_eps" in source
    return stated | ({"group_norm_eps": config.group_norm_epsilon} if other else {})


def divisor(config: RWKV6Config) -> float:
    """What the values are divided by in fla.

    Raises:
        EverlongError: it is no power of two, so that fla could not hold the model exactly.
    """
    exponent = math.log2(config.group_norm_epsilon / config.norm_epsilon) / 2
    if not math.isclose(exponent, round(exponent), abs_tol=1e-9):
        raise EverlongError(
            f"group_norm_epsilon is {config.group_norm_epsilon} and norm_epsilon {config.norm_epsilon}; "
            "the fla format needs their ratio to be a power of 4"
        )
    return 2.0 ** round(exponent)


def inward(tensors: Mapping[str, Tensor], config: RWKV6Config) -> dict[str, Tensor]:
    """From fla's layouts, under our names."""
    turned: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        layer, leaf = _leaf(name)
        if leaf == "time_maa" and tensor.ndim == 2 and len(tensor) == 5:
            turned |= {f"{layer}time_maa_{which}": tensor[i] for which, i in zip(STACKED, INWARD, strict=True)}
        elif leaf == "time_maa_w1" and tensor.ndim == 2 and len(tensor) % 5 == 0:
            turned[name] = tensor.unflatten(0, (5, -1))[INWARD].flatten(0, 1).T
        elif leaf == "time_maa_w2" and tensor.ndim == 2 and tensor.shape[1] % 5 == 0:
            turned[name] = tensor.T.unflatten(0, (5, -1))[INWARD]
        elif leaf in ("time_decay_w1", "time_decay_w2") and tensor.ndim == 2:
            turned[name] = tensor.T
        else:
            turned[name] = tensor * divisor(config) if leaf == "value.weight" else tensor
    return turned


def outward(tensors: Mapping[str, Tensor], config: RWKV6Config) -> dict[str, Tensor]:
    """Into fla's layouts, under our names."""
    turned: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        layer, leaf = _leaf(name)
        if leaf == "time_maa_w1":
            turned[name] = tensor.unflatten(1, (5, -1))[:, OUTWARD].flatten(1).T
        elif leaf == "time_maa_w2":
            turned[name] = tensor[OUTWARD].flatten(0, 1).T
        elif leaf in ("time_decay_w1", "time_decay_w2"):
            turned[name] = tensor.T
        elif leaf in ("time_maa_w", "time_maa_k", "time_maa_v", "time_maa_r", "time_maa_g"):
            five = [tensors[f"{layer}time_maa_{STACKED[i]}"] for i in OUTWARD]
            turned[f"{layer}time_maa"] = torch.stack(five)
        else:
            turned[name] = tensor / divisor(config) if leaf == "value.weight" else tensor
    return turned


def _leaf(name: str) -> tuple[str, str]:
    """A time mix's prefix and the parameter's name in it; no leaf for every other tensor."""
    layer, mixer, leaf = name.rpartition(".mixer.")
    return (layer + mixer, leaf) if mixer else (name, "")
