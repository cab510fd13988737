"""The format of transformers' Mamba-2 (Mamba2ForCausalLM, 5.24), read and written without importing transformers."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from everlong.checkpoints._fields import encode_float, parse_fields
from everlong.checkpoints._format import CheckpointFormat
from everlong.errors import EverlongError
from everlong.models.config import LanguageModelConfig, Mamba2Config
from everlong.models.language_model import LanguageModel

DEFAULTS: dict[str, Any] = {
    "num_heads": 128,
    "head_dim": 64,
    "vocab_size": 32768,
    "hidden_size": 4096,
    "state_size": 128,
    "num_hidden_layers": 64,
    "layer_norm_epsilon": 1e-5,
    "expand": 2,
    "conv_kernel": 4,
    "n_groups": 8,
    "use_bias": False,
    "use_conv_bias": True,
    "residual_in_fp32": True,
    "tie_word_embeddings": False,
    "time_step_min": 0.001,
    "time_step_max": 0.1,
    "time_step_floor": 1e-4,
    "time_step_limit": [0.0, float("inf")],
}
"""transformers' own defaults, for keys that a config.json leaves out."""

ACTIVATIONS = ("silu", "swish")


class TransformersFormat(CheckpointFormat):
    """Mamba-2 models of transformers; the vocabulary is not padded and the embedding is called "embeddings"."""

    name = "transformers"
    signature = '"model_type": "mamba2"'
    field_names = MappingProxyType(
        {
            "vocab_size": "vocab_size",
            "d_model": "hidden_size",
            "n_layer": "num_hidden_layers",
            "norm_epsilon": "layer_norm_epsilon",
            "residual_in_fp32": "residual_in_fp32",
            "tie_embeddings": "tie_word_embeddings",
            "d_state": "state_size",
            "headdim": "head_dim",
            "expand": "expand",
            "ngroups": "n_groups",
            "d_conv": "conv_kernel",
            "bias": "use_bias",
            "conv_bias": "use_conv_bias",
            "dt_min": "time_step_min",
            "dt_max": "time_step_max",
            "dt_init_floor": "time_step_floor",
            "dt_limit": "time_step_limit",
        }
    )
    tensor_names = MappingProxyType({"backbone.embedding.weight": "backbone.embeddings.weight"})

    def recognises(self, config: Mapping[str, Any]) -> bool:
        """Any "model_type", so that an unknown one is an error of its own."""
        return "model_type" in config

    def parse(self, config: Mapping[str, Any], path: Path) -> LanguageModelConfig:
        """Absent keys take transformers' defaults; another model_type or activation is refused."""
        kind = config["model_type"]
        if kind != "mamba2":
            raise EverlongError(f"{path}: model_type is {kind!r}; known: mamba2")
        activation = config.get("hidden_act", "silu")
        if activation not in ACTIVATIONS:
            raise EverlongError(f"{path}: hidden_act is {activation!r}; Everlong's mamba2 has silu only")
        theirs = {**DEFAULTS, **config}
        values = {ours: theirs[name] for ours, name in self.field_names.items()}
        parsed = parse_fields("mamba2", {**values, "pad_vocab_size_multiple": 1}, path=path, names=self.field_names)
        assert isinstance(parsed, Mamba2Config)
        if theirs["num_heads"] != parsed.nheads:
            raise EverlongError(
                f"{path}: num_heads is {theirs['num_heads']}, but expand * hidden_size / head_dim is {parsed.nheads}"
            )
        return parsed

    def compose(
        self, model: LanguageModel, source: Mapping[str, Any], *, context: int | None, tokenizer: str | None
    ) -> dict[str, Any]:
        """The source's keys with our values; dtype is the model's, under the name that the source uses."""
        config = model.config
        if not isinstance(config, Mamba2Config):
            raise EverlongError(f"the transformers format holds mamba2 models, this one is {config.architecture}")
        base: dict[str, Any] = {"architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "hidden_act": "silu"}
        base |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}  # the defaults are of one tokenizer
        ours: dict[str, Any] = {theirs: getattr(config, name) for name, theirs in self.field_names.items()}
        ours |= {"vocab_size": config.padded_vocab_size, "num_heads": config.nheads}
        ours |= {"time_step_limit": [encode_float(end) for end in config.dt_limit]}
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
