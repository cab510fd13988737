"""The format of transformers' Mamba, FalconMamba and Mamba-2 (5.24); transformers itself is not imported."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from everlong.checkpoints._fields import encode_float, parse_fields
from everlong.checkpoints._format import CheckpointFormat
from everlong.errors import EverlongError
from everlong.models.config import LanguageModelConfig
from everlong.models.language_model import LanguageModel

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "vocab_size": "vocab_size",
        "d_model": "hidden_size",
        "n_layer": "num_hidden_layers",
        "norm_epsilon": "layer_norm_epsilon",
        "residual_in_fp32": "residual_in_fp32",
        "tie_embeddings": "tie_word_embeddings",
        "d_state": "state_size",
        "expand": "expand",
        "d_conv": "conv_kernel",
        "bias": "use_bias",
        "conv_bias": "use_conv_bias",
        "dt_min": "time_step_min",
        "dt_max": "time_step_max",
        "dt_init_floor": "time_step_floor",
        "dt_rank": "time_step_rank",
        "dt_scale": "time_step_scale",
        "dt_init": "time_step_init_scheme",
        "bcdt_rms_epsilon": "mixer_rms_eps",
        "headdim": "head_dim",
        "ngroups": "n_groups",
        "dt_limit": "time_step_limit",
    }
)
"""Our configuration fields -> transformers'; a family has those that its defaults name."""

SHARED: dict[str, Any] = {
    "hidden_size": 768,
    "num_hidden_layers": 32,
    "layer_norm_epsilon": 1e-5,
    "expand": 2,
    "conv_kernel": 4,
    "use_bias": False,
    "use_conv_bias": True,
    "residual_in_fp32": True,
    "time_step_min": 0.001,
    "time_step_max": 0.1,
    "time_step_floor": 1e-4,
}
MAMBA: dict[str, Any] = SHARED | {
    "vocab_size": 50280,
    "state_size": 16,
    "tie_word_embeddings": True,
    "time_step_rank": "auto",
    "time_step_scale": 1.0,
    "time_step_init_scheme": "random",
}
MAMBA2: dict[str, Any] = SHARED | {
    "vocab_size": 32768,
    "hidden_size": 4096,
    "state_size": 128,
    "num_hidden_layers": 64,
    "head_dim": 64,
    "n_groups": 8,
    "tie_word_embeddings": False,
    "time_step_limit": [0.0, float("inf")],
}

ACTIVATIONS = ("silu", "swish")


@dataclass(frozen=True, kw_only=True)
class Family:
    """A model_type of transformers."""

    architecture: str
    """Ours."""
    model_class: str
    """Theirs, for config.json."""
    defaults: Mapping[str, Any]
    """Theirs, for keys that a config.json leaves out."""
    derived: Mapping[str, tuple[str, str]]
    """Their keys that follow from others -> our property, and how it follows, for messages."""
    implied: Mapping[str, Any] = field(default_factory=dict)
    """Our fields that the model_type itself sets."""


FAMILIES: dict[str, Family] = {
    "falcon_mamba": Family(
        architecture="mamba1",
        model_class="FalconMambaForCausalLM",
        defaults=MAMBA | {"mixer_rms_eps": 1e-6},
        derived={"intermediate_size": ("d_inner", "expand * hidden_size")},
        implied={"bcdt_rms": True},
    ),
    "mamba": Family(
        architecture="mamba1",
        model_class="MambaForCausalLM",
        defaults=MAMBA,
        derived={"intermediate_size": ("d_inner", "expand * hidden_size")},
        implied={"bcdt_rms": False},
    ),
    "mamba2": Family(
        architecture="mamba2",
        model_class="Mamba2ForCausalLM",
        defaults=MAMBA2 | {"num_heads": 128},
        derived={"num_heads": ("nheads", "expand * hidden_size / head_dim")},
    ),
}


class TransformersFormat(CheckpointFormat):
    """Mamba models of transformers; the vocabulary is not padded and the embedding is called "embeddings"."""

    name = "transformers"
    signature = f'"model_type" ({", ".join(FAMILIES)})'
    field_names = NAMES
    tensor_names = MappingProxyType({"backbone.embedding.weight": "backbone.embeddings.weight"})

    def recognises(self, config: Mapping[str, Any]) -> bool:
        """Any "model_type", so that an unknown one is an error of its own."""
        return "model_type" in config

    def parse(self, config: Mapping[str, Any], path: Path) -> LanguageModelConfig:
        """Absent keys take transformers' defaults; another model_type or activation is refused."""
        kind = config["model_type"]
        if not isinstance(kind, str) or kind not in FAMILIES:
            raise EverlongError(f"{path}: model_type is {kind!r}; known: {', '.join(FAMILIES)}")
        family = FAMILIES[kind]
        activation = config.get("hidden_act", "silu")
        if activation not in ACTIVATIONS:
            raise EverlongError(f"{path}: hidden_act is {activation!r}; Everlong's {family.architecture} has silu only")
        theirs = {**family.defaults, **config}
        _let_the_width_speak(theirs)
        values = {ours: theirs[name] for ours, name in NAMES.items() if name in family.defaults}
        values |= {**family.implied, "pad_vocab_size_multiple": 1}
        parsed = parse_fields(family.architecture, values, path=path, names=NAMES)
        for name, (ours, how) in family.derived.items():
            if theirs.get(name, getattr(parsed, ours)) != getattr(parsed, ours):
                raise EverlongError(f"{path}: {name} is {theirs[name]}, but {how} is {getattr(parsed, ours)}")
        return parsed

    def compose(
        self, model: LanguageModel, source: Mapping[str, Any], *, context: int | None, tokenizer: str | None
    ) -> dict[str, Any]:
        """The source's keys with our values; dtype is the model's, under the name that the source uses."""
        config = model.config
        kind = _family_of(config)
        family = FAMILIES[kind]
        base: dict[str, Any] = {"architectures": [family.model_class], "model_type": kind, "hidden_act": "silu"}
        base |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}  # the defaults are of one tokenizer
        names = {ours: theirs for ours, theirs in NAMES.items() if theirs in family.defaults}
        ours = {theirs: _plain(getattr(config, name)) for name, theirs in names.items()}
        ours |= {name: getattr(config, property) for name, (property, _) in family.derived.items()}
        ours |= {"vocab_size": config.padded_vocab_size}
        dtype = str(model.dtype).removeprefix("torch.")
        legacy = "torch_dtype" in source
        ours |= {"torch_dtype": dtype} if legacy else {}
        ours |= {"dtype": dtype} if not legacy or "dtype" in source else {}
        return {**(source or base), **ours}

    def tensors(self, model: LanguageModel) -> dict[str, Tensor]:
        """The state dict under transformers' names; a tied head is stored once, as save_pretrained does."""
        tensors = {self.tensor_names.get(name, name): tensor for name, tensor in model.state_dict().items()}
        if model.config.tie_embeddings:
            del tensors["lm_head.weight"]
        return tensors


def _family_of(config: LanguageModelConfig) -> str:
    for kind, family in FAMILIES.items():
        implied = all(getattr(config, name, None) == value for name, value in family.implied.items())
        if family.architecture == config.architecture and implied:
            return kind
    known = " and ".join(sorted({family.architecture for family in FAMILIES.values()}))
    raise EverlongError(f"the transformers format holds {known} models, this one is {config.architecture}")


def _let_the_width_speak(theirs: dict[str, Any]) -> None:
    """An intermediate_size stands above expand, as in transformers: falcon-mamba-7b says 8192 and 16 x 4096."""
    width, base = theirs.get("intermediate_size"), theirs["hidden_size"]
    if type(width) is int and type(base) is int and base > 0 and width % base == 0:
        theirs["expand"] = width // base


def _plain(value: Any) -> Any:
    return [encode_float(end) for end in value] if isinstance(value, tuple) else value
