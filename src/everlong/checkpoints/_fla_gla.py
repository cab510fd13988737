"""What is GLA's own in fla's format (fla/models/gla, fla/layers/gla.py)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from everlong.errors import EverlongError
from everlong.models.config import GLAConfig

CLASS_NAME = "GLAForCausalLM"
FIELDS = {"num_heads": "num_heads", "use_short_conv": "use_short_conv", "conv_size": "conv_size"}
DEFAULTS: dict[str, Any] = {"norm_eps": 1e-6, "hidden_ratio": 4, "use_short_conv": False, "conv_size": 4}
FIXED: dict[str, Any] = {
    "feature_map": None,
    "use_output_gate": True,
    "clamp_min": None,
    "hidden_act": "swish",
    "elementwise_affine": True,
    "attn": None,
    "attnres_block_size": None,
}
NAMES = {
    "backbone.layers.{}.norm2.": "model.layers.{}.mlp_norm.",
    "backbone.layers.{}.mixer.g_norm.": "model.layers.{}.attn.g_norm_swish_gate.",
    "backbone.layers.{}.mlp.": "model.layers.{}.mlp.",
}
RANK, NORMALIZER = 16, 16.0  # fla's config.json has no keys for them


def refine(theirs: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Refuses keys and values that heads share."""
    if theirs.get("num_kv_heads") not in (None, theirs["num_heads"]):
        raise EverlongError(
            f"{path}: num_kv_heads is {theirs['num_kv_heads']!r}; Everlong's gla has as many as num_heads only"
        )
    return {"gate_low_rank_dim": RANK, "gate_logit_normalizer": NORMALIZER}


def restate(config: GLAConfig, source: Mapping[str, Any]) -> dict[str, Any]:
    """The names written are those of the fused norm."""
    if (config.gate_low_rank_dim, config.gate_logit_normalizer) != (RANK, NORMALIZER):
        raise EverlongError(
            f"gate_low_rank_dim is {config.gate_low_rank_dim} and gate_logit_normalizer "
            f"{config.gate_logit_normalizer:g}; the fla format has {RANK} and {NORMALIZER:g} only"
        )
    return {"fuse_norm": True}


def inward(tensors: Mapping[str, Tensor], config: GLAConfig) -> dict[str, Tensor]:
    """Nothing is turned: where fuse_norm is false the norm is called g_norm, which is our own name."""
    return dict(tensors)


def outward(tensors: Mapping[str, Tensor], config: GLAConfig) -> dict[str, Tensor]:
    """Nothing is turned."""
    return dict(tensors)
