"""The format of flash-linear-attention 0.6.0's GLA and RWKV-6 (GLAForCausalLM, RWKV6ForCausalLM).

fla has no key for two of our settings; where they are not its own, config.json carries them under names that fla
ignores: "residual_in_fp32", and for RWKV-6 "group_norm_eps" (see ``_fla_rwkv6``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from everlong.checkpoints import _fla_gla, _fla_rwkv6
from everlong.checkpoints._checkpoint import Placement
from everlong.checkpoints._fields import parse_fields
from everlong.checkpoints._filling import fill_model
from everlong.checkpoints._format import CheckpointFormat
from everlong.checkpoints._names import NameTable
from everlong.checkpoints._weights import Weights
from everlong.errors import EverlongError
from everlong.models.config import LanguageModelConfig
from everlong.models.language_model import LanguageModel

FIELDS = {
    "vocab_size": "vocab_size",
    "d_model": "hidden_size",
    "n_layer": "num_hidden_layers",
    "norm_epsilon": "norm_eps",
    "tie_embeddings": "tie_word_embeddings",
    "residual_in_fp32": "residual_in_fp32",
    "expand_k": "expand_k",
    "expand_v": "expand_v",
    "hidden_ratio": "hidden_ratio",
    "intermediate_size": "intermediate_size",
}
"""Our fields -> fla's, in both architectures."""

DEFAULTS: dict[str, Any] = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "tie_word_embeddings": False,
    "residual_in_fp32": True,
    "expand_k": 0.5,
    "expand_v": 1.0,
    "num_heads": 4,
    "intermediate_size": None,
}
"""fla's own defaults, in both architectures."""

FOLLOWING = {"headdim": "expand_k * hidden_size / num_heads"}
"""Our fields that follow from fla's -> how, for messages."""

NAMES = {
    "backbone.embedding.": "model.embeddings.",
    "backbone.layers.{}.norm.": "model.layers.{}.attn_norm.",
    "backbone.layers.{}.mixer.": "model.layers.{}.attn.",
    "backbone.norm_f.": "model.norm.",
}


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """What differs between the architectures."""

    module: Any
    """``_fla_gla`` or ``_fla_rwkv6``: CLASS_NAME, FIELDS, DEFAULTS, FIXED, NAMES, refine, restate, inward, outward."""

    @property
    def fields(self) -> dict[str, str]:
        return FIELDS | self.module.FIELDS

    @property
    def names(self) -> NameTable:
        return NameTable(NAMES | self.module.NAMES)


KINDS = {"gla": _Kind(module=_fla_gla), "rwkv6": _Kind(module=_fla_rwkv6)}


class FlaFormat(CheckpointFormat):
    """The vocabulary is not padded; a tied head is stored once."""

    name = "fla"
    signature = '"model_type": "gla" or "rwkv6"'
    field_names = MappingProxyType(FIELDS | _fla_gla.FIELDS | _fla_rwkv6.FIELDS)

    def recognises(self, config: Mapping[str, Any]) -> bool:
        """By the model_type."""
        return config.get("model_type") in KINDS

    def parse(self, config: Mapping[str, Any], path: Path) -> LanguageModelConfig:
        """Absent keys take fla's defaults; what Everlong does not have is refused by name."""
        architecture = config["model_type"]
        kind = KINDS[architecture]
        theirs = {**DEFAULTS, **kind.module.DEFAULTS, **config}
        if "attention_hidden_size" in config:
            raise EverlongError(f"{path} is of transformers' own rwkv6 code, not of fla; give BlinkDL's .pth instead")
        for name, wanted in kind.module.FIXED.items():
            if config.get(name, wanted) != wanted:
                raise EverlongError(
                    f"{path}: {name} is {config[name]!r}; Everlong's {architecture} has {wanted!r} only"
                )
        values = {ours: theirs[name] for ours, name in kind.fields.items()}
        values |= {"pad_vocab_size_multiple": 1, "intermediate_size": values["intermediate_size"] or 0}
        if values["hidden_ratio"] is None:
            values["hidden_ratio"] = kind.module.DEFAULTS["hidden_ratio"]
        values |= kind.module.refine(theirs, path)
        return parse_fields(architecture, values, path=path, names=kind.fields)

    def compose(
        self, model: LanguageModel, source: Mapping[str, Any], *, context: int | None, tokenizer: str | None
    ) -> dict[str, Any]:
        """The source's keys with our values."""
        config: Any = model.config
        if config.architecture not in KINDS:
            raise EverlongError(f"the fla format holds {', '.join(KINDS)} models, this one is {config.architecture}")
        kind = KINDS[config.architecture]
        base: dict[str, Any] = {
            "architectures": [kind.module.CLASS_NAME],
            "model_type": config.architecture,
            **kind.module.FIXED,
            **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id")),  # fla's defaults are of one tokenizer
        }
        ours: dict[str, Any] = {theirs: getattr(config, name) for name, theirs in kind.fields.items()}
        ours |= {"vocab_size": config.padded_vocab_size, "intermediate_size": config.intermediate_size or None}
        if config.residual_in_fp32 and "residual_in_fp32" not in source:
            del ours["residual_in_fp32"]
        ours |= kind.module.restate(config, source)
        dtype = str(model.dtype).removeprefix("torch.")
        return {**(source or base), **ours, "torch_dtype" if "torch_dtype" in source else "dtype": dtype}

    def tensors(self, model: LanguageModel) -> dict[str, Tensor]:
        """The state dict in fla's names and layouts."""
        kind, ours = KINDS[model.config.architecture], model.state_dict()
        if model.config.tie_embeddings:
            del ours["lm_head.weight"]
        turned = kind.module.outward(ours, model.config)
        return {kind.names.theirs(name): tensor for name, tensor in turned.items()}

    def read(self, folder: Path, config: Mapping[str, Any], weights: Weights, placement: Placement) -> LanguageModel:
        """The model in a folder; see ``fill_model`` for what is checked."""
        parsed = self.parse(config, folder / "config.json")
        kind = KINDS[parsed.architecture]
        ours = {kind.names.ours(name): tensor for name, tensor in weights.tensors.items()}
        return fill_model(
            parsed,
            replace(weights, tensors=kind.module.inward(ours, parsed)),
            placement,
            field=lambda name: kind.fields.get(name, FOLLOWING.get(name, name)),
            ours=lambda name: name,
            theirs=kind.names.theirs,
        )
