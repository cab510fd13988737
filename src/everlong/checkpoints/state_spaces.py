"""The format of state-spaces/mamba (mamba_ssm's MambaLMHeadModel): config.json and pytorch_model.bin, names as ours.

mamba_ssm passes config.json to its configuration class as keyword arguments and loads pytorch_model.bin strictly: no
key may be added to the first, and none may be missing from the second, a tied head included.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from torch import Tensor

from everlong.checkpoints._fields import parse_fields
from everlong.checkpoints._format import CheckpointFormat
from everlong.errors import EverlongError
from everlong.models.config import LanguageModelConfig, Mamba2Config
from everlong.models.language_model import LanguageModel

SKELETON = ("d_model", "n_layer", "vocab_size", "pad_vocab_size_multiple", "residual_in_fp32", "tie_embeddings")
MIXER = (
    *("d_state", "headdim", "expand", "ngroups", "d_conv", "bias", "conv_bias"),
    *("A_init_range", "dt_min", "dt_max", "dt_init_floor", "dt_limit"),
)
IGNORED = {"layer", "chunk_size", "use_mem_eff_path", "conv_init"}  # nothing that changes what a trained model computes
EPSILON = 1e-5  # fixed in mamba_ssm
PUBLISHED: dict[str, Any] = {
    "d_intermediate": 0,
    "attn_layer_idx": [],
    "attn_cfg": {},
    "rms_norm": True,
    "residual_in_fp32": True,
    "fused_add_norm": True,
    "pad_vocab_size_multiple": 8,
    "tie_embeddings": True,
}
"""mamba_ssm's own defaults."""


class StateSpacesFormat(CheckpointFormat):
    """Mamba-2 models of state-spaces/mamba."""

    name = "state-spaces"
    signature = '"d_model", "n_layer" and "ssm_cfg"'
    default_container = "bin"

    def recognises(self, config: Mapping[str, Any]) -> bool:
        """It has mamba_ssm's names and no "model_type"."""
        return "model_type" not in config and "d_model" in config and "n_layer" in config

    def parse(self, config: Mapping[str, Any], path: Path) -> LanguageModelConfig:
        """Refuses what Everlong does not have; absent keys take mamba_ssm's defaults."""
        mixer = config.get("ssm_cfg") or {}
        if not isinstance(mixer, dict):
            raise EverlongError(f"{path}: ssm_cfg is {mixer!r}; it must be an object")
        layer = mixer.get("layer", "Mamba1")
        if layer != "Mamba2":
            raise EverlongError(f"{path}: ssm_cfg.layer is {layer!r}; known: Mamba2")
        absent = [name for name in ("d_model", "n_layer", "vocab_size") if name not in config]
        if absent:
            raise EverlongError(f"{path}: {', '.join(absent)} is missing")
        values = {name: config.get(name, PUBLISHED.get(name)) for name in SKELETON}
        values |= {name: mixer[name] for name in MIXER if name in mixer}
        parsed = parse_fields("mamba2", values, path=path)
        assert isinstance(parsed, Mamba2Config)
        _refuse_unknown(config, mixer, parsed, path)
        return parsed

    def compose(
        self, model: LanguageModel, source: Mapping[str, Any], *, context: int | None, tokenizer: str | None
    ) -> dict[str, Any]:
        """The source's keys with our values; ssm_cfg has what the source had and whatever is not the default."""
        config = model.config
        if not isinstance(config, Mamba2Config):
            raise EverlongError(f"the state-spaces format holds mamba2 models, this one is {config.architecture}")
        if config.norm_epsilon != EPSILON:
            raise EverlongError(f"norm_epsilon is {config.norm_epsilon}; the state-spaces format has {EPSILON} only")
        skeleton = {name: getattr(config, name) for name in SKELETON}
        if source:  # an older mamba_ssm may not know a key that the source leaves out
            skeleton = {n: v for n, v in skeleton.items() if n in source or v != PUBLISHED.get(n)}
        defaults = {field.name: field.default for field in fields(Mamba2Config)}
        mixer: dict[str, Any] = dict(source.get("ssm_cfg", {"layer": "Mamba2"}))
        for name in MIXER:
            value = getattr(config, name)
            if name in mixer or value != defaults[name]:
                mixer[name] = list(value) if isinstance(value, tuple) else value
        return {**(source or PUBLISHED), **skeleton, "ssm_cfg": mixer}

    def tensors(self, model: LanguageModel) -> dict[str, Tensor]:
        """The whole state dict: mamba_ssm asks for the tied head too."""
        return model.state_dict()


def _refuse_unknown(config: Mapping[str, Any], mixer: Mapping[str, Any], parsed: Mamba2Config, path: Path) -> None:
    """Names the first feature that a model of this format has and Everlong does not."""
    allowed: dict[str, tuple[Any, Any]] = {
        "attn_layer_idx": (config.get("attn_layer_idx") or [], []),
        "d_intermediate": (config.get("d_intermediate", 0), 0),
        "rms_norm": (config.get("rms_norm", True), True),
        "norm_epsilon": (config.get("norm_epsilon", EPSILON), EPSILON),
        "ssm_cfg.rmsnorm": (mixer.get("rmsnorm", True), True),
        "ssm_cfg.norm_before_gate": (mixer.get("norm_before_gate", False), False),
        "ssm_cfg.D_has_hdim": (mixer.get("D_has_hdim", False), False),
        "ssm_cfg.d_ssm": (mixer.get("d_ssm") or parsed.d_inner, parsed.d_inner),
    }
    for name, (found, wanted) in allowed.items():
        if found != wanted:
            raise EverlongError(f"{path}: {name} is {found!r}; Everlong's mamba2 has {wanted!r} only")
    known = {*MIXER, *IGNORED, *(name.removeprefix("ssm_cfg.") for name in allowed if name.startswith("ssm_cfg."))}
    unknown = sorted(set(mixer) - known)
    if unknown:
        raise EverlongError(f"{path}: ssm_cfg has {', '.join(unknown)}; known: {', '.join(sorted(known))}")
