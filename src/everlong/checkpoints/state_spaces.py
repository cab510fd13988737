"""The format of state-spaces/mamba (mamba_ssm's MambaLMHeadModel): config.json and pytorch_model.bin, names as ours.

mamba_ssm passes config.json to its configuration class as keyword arguments and loads pytorch_model.bin strictly: no
key may be added to the first, and none may be missing from the second, a tied head included.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch import Tensor

from everlong.checkpoints._fields import parse_fields
from everlong.checkpoints._format import CheckpointFormat
from everlong.errors import EverlongError
from everlong.models.architectures import CONFIGS
from everlong.models.config import LanguageModelConfig
from everlong.models.language_model import LanguageModel

SKELETON = ("d_model", "n_layer", "vocab_size", "pad_vocab_size_multiple", "residual_in_fp32", "tie_embeddings")
SHARED = ("d_state", "expand", "d_conv", "bias", "conv_bias", "dt_min", "dt_max", "dt_init_floor")
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


@dataclass(frozen=True, kw_only=True)
class Layer:
    """An architecture as ssm_cfg knows it."""

    name: str
    """Of its "layer"."""
    fields: tuple[str, ...]
    """What ssm_cfg sets, under our names."""
    ignored: tuple[str, ...]
    """Nothing that changes what a trained model computes."""
    only: Callable[[Any], dict[str, Any]]
    """Settings of which Everlong has one value, given the configuration."""


LAYERS: dict[str, Layer] = {
    "mamba1": Layer(
        name="Mamba1",
        fields=(*SHARED, "dt_rank", "dt_init", "dt_scale"),
        ignored=("layer", "use_fast_path"),
        only=lambda config: {},
    ),
    "mamba2": Layer(
        name="Mamba2",
        fields=(*SHARED, "headdim", "ngroups", "A_init_range", "dt_limit"),
        ignored=("layer", "chunk_size", "use_mem_eff_path", "conv_init"),
        only=lambda config: {
            "rmsnorm": True,
            "norm_before_gate": False,
            "D_has_hdim": False,
            "d_ssm": config.d_inner,
        },
    ),
}
"""By architecture."""


class StateSpacesFormat(CheckpointFormat):
    """Mamba-1 and Mamba-2 models of state-spaces/mamba."""

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
        kind = mixer.get("layer", "Mamba1")
        architecture = next((name for name, layer in LAYERS.items() if layer.name == kind), None)
        if architecture is None:
            known = ", ".join(layer.name for layer in LAYERS.values())
            raise EverlongError(f"{path}: ssm_cfg.layer is {kind!r}; known: {known}")
        absent = [name for name in ("d_model", "n_layer", "vocab_size") if name not in config]
        if absent:
            raise EverlongError(f"{path}: {', '.join(absent)} is missing")
        values = {name: config.get(name, PUBLISHED.get(name)) for name in SKELETON}
        values |= {name: mixer[name] for name in LAYERS[architecture].fields if name in mixer}
        parsed = parse_fields(architecture, values, path=path)
        _refuse_unknown(config, mixer, parsed, path)
        return parsed

    def compose(
        self, model: LanguageModel, source: Mapping[str, Any], *, context: int | None, tokenizer: str | None
    ) -> dict[str, Any]:
        """The source's keys with our values; ssm_cfg has what the source had and whatever is not the default."""
        config = model.config
        if config.architecture not in LAYERS:
            known = " and ".join(LAYERS)
            raise EverlongError(f"the state-spaces format holds {known} models, this one is {config.architecture}")
        if config.norm_epsilon != EPSILON:
            raise EverlongError(f"norm_epsilon is {config.norm_epsilon}; the state-spaces format has {EPSILON} only")
        if getattr(config, "bcdt_rms", False):
            raise EverlongError(
                "bcdt_rms is true; the state-spaces format has no norms on B, C and dt, transformers' has"
            )
        layer = LAYERS[config.architecture]
        skeleton = {name: getattr(config, name) for name in SKELETON}
        if source:  # an older mamba_ssm may not know a key that the source leaves out
            skeleton = {n: v for n, v in skeleton.items() if n in source or v != PUBLISHED.get(n)}
        defaults = {field.name: field.default for field in fields(CONFIGS[config.architecture])}
        mixer: dict[str, Any] = dict(source.get("ssm_cfg") or ({} if source else {"layer": layer.name}))
        for name in layer.fields:
            value = getattr(config, name)
            if name in mixer or value != defaults[name]:
                mixer[name] = list(value) if isinstance(value, tuple) else value
        return {**(source or PUBLISHED), **skeleton, "ssm_cfg": mixer}

    def tensors(self, model: LanguageModel) -> dict[str, Tensor]:
        """The whole state dict: mamba_ssm asks for the tied head too."""
        return model.state_dict()


def _refuse_unknown(
    config: Mapping[str, Any], mixer: Mapping[str, Any], parsed: LanguageModelConfig, path: Path
) -> None:
    """Names the first feature that a model of this format has and Everlong does not."""
    layer = LAYERS[parsed.architecture]
    only = layer.only(parsed)
    allowed: dict[str, tuple[Any, Any]] = {
        "attn_layer_idx": (config.get("attn_layer_idx") or [], []),
        "d_intermediate": (config.get("d_intermediate", 0), 0),
        "rms_norm": (config.get("rms_norm", True), True),
        "norm_epsilon": (config.get("norm_epsilon", EPSILON), EPSILON),
        **{f"ssm_cfg.{name}": (mixer[name], wanted) for name, wanted in only.items() if mixer.get(name) is not None},
    }
    for name, (found, wanted) in allowed.items():
        if found != wanted:
            raise EverlongError(f"{path}: {name} is {found!r}; Everlong's {parsed.architecture} has {wanted!r} only")
    known = {*layer.fields, *layer.ignored, *only}
    unknown = sorted(set(mixer) - known)
    if unknown:
        raise EverlongError(f"{path}: ssm_cfg has {', '.join(unknown)}; known: {', '.join(sorted(known))}")
