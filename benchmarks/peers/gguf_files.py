"""Our models as GGUF files for llama.cpp, in float32: Mamba-1, Mamba-2 and RWKV-6.

Names and shapes are those that llama.cpp's loader asks for; ggml lists axes last first, so arrays are as in numpy.
"""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import NotAvailable
from everlong.models.config import Mamba1Config, Mamba2Config, RWKV6Config
from everlong.models.language_model import LanguageModel

Named = Iterator[tuple[str, Tensor]]


def write(model: LanguageModel, path: Path) -> None:
    """Writes a model of one of the three architectures.

    Raises:
        NotAvailable: the gguf package is missing.
    """
    try:
        gguf: Any = import_module("gguf")  # by name: checkers need not have it installed
    except ImportError:
        raise NotAvailable("gguf is not installed (pip install -r benchmarks/requirements.txt)") from None
    config: Any = model.config
    architecture = {"mamba1": "mamba"}.get(config.architecture, config.architecture)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(config.padded_vocab_size)
    writer.add_context_length(2**20)
    writer.add_embedding_length(config.d_model)
    writer.add_block_count(config.n_layer)
    writer.add_head_count(0)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    (_describe_rwkv6 if config.architecture == "rwkv6" else _describe_mamba)(writer, config)
    for name, tensor in tensors(config, {name: tensor.detach() for name, tensor in model.state_dict().items()}):
        writer.add_tensor(name, tensor.float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(config: Any, weights: dict[str, Tensor]) -> Named:
    """llama.cpp's names and arrays."""
    layer = {"mamba1": _mamba1, "mamba2": _mamba2, "rwkv6": _rwkv6}[config.architecture]
    yield "token_embd.weight", weights["backbone.embedding.weight"]
    yield from _norm("output_norm", weights, "backbone.norm_f.")
    if not config.tie_embeddings:
        yield "output.weight", weights["lm_head.weight"]
    yield from _norm("token_embd_norm", weights, "backbone.embedding_norm.")
    for index in range(config.n_layer):
        prefix = f"backbone.layers.{index}."
        mine = {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
        for name, tensor in (*_norm("attn_norm", mine, "norm."), *layer(config, mine)):
            yield f"blk.{index}.{name}", tensor


def _norm(name: str, weights: dict[str, Tensor], prefix: str) -> Named:
    for part in ("weight", "bias"):
        if f"{prefix}{part}" in weights:
            yield f"{name}.{part}", weights[f"{prefix}{part}"]


def _mamba1(config: Mamba1Config, layer: dict[str, Tensor]) -> Named:
    yield from _shared_by_mambas(layer)
    yield "ssm_x.weight", layer["mixer.x_proj.weight"]
    yield "ssm_dt.weight", layer["mixer.dt_proj.weight"]
    yield "ssm_dt.bias", layer["mixer.dt_proj.bias"]
    yield "ssm_a", -layer["mixer.A_log"].exp()
    yield "ssm_d", layer["mixer.D"]


def _mamba2(config: Mamba2Config, layer: dict[str, Tensor]) -> Named:
    yield from _shared_by_mambas(layer)
    yield "ssm_dt.bias", layer["mixer.dt_bias"]
    yield "ssm_a", -layer["mixer.A_log"].exp().unsqueeze(-1)
    yield "ssm_d", layer["mixer.D"].unsqueeze(-1)
    yield "ssm_norm.weight", layer["mixer.norm.weight"].view(config.ngroups, -1)


def _shared_by_mambas(layer: dict[str, Tensor]) -> Named:
    yield "ssm_in.weight", layer["mixer.in_proj.weight"]
    yield "ssm_conv1d.weight", layer["mixer.conv1d.weight"].squeeze(1)
    yield "ssm_conv1d.bias", layer["mixer.conv1d.bias"]
    yield "ssm_out.weight", layer["mixer.out_proj.weight"]


def _rwkv6(config: RWKV6Config, layer: dict[str, Tensor]) -> Named:
    yield from _norm("attn_norm_2", layer, "norm2.")
    yield from _norm("time_mix_ln", layer, "mixer.ln_x.")
    for name in ("receptance", "key", "value", "gate", "output"):
        yield f"time_mix_{name}.weight", layer[f"mixer.{name}.weight"]
    yield "time_mix_w1.weight", layer["mixer.time_maa_w1"].T
    yield "time_mix_w2.weight", layer["mixer.time_maa_w2"].transpose(1, 2)
    yield "time_mix_lerp_x.weight", layer["mixer.time_maa_x"]
    fused = torch.stack([layer[f"mixer.time_maa_{name}"] for name in "wkvrg"])
    yield "time_mix_lerp_fused.weight", fused[:, None, None, :]
    yield "time_mix_first.weight", layer["mixer.time_faaaa"]
    yield "time_mix_decay.weight", layer["mixer.time_decay"]
    yield "time_mix_decay_w1.weight", layer["mixer.time_decay_w1"].T
    yield "time_mix_decay_w2.weight", layer["mixer.time_decay_w2"].T
    for name in "kr":
        yield f"channel_mix_lerp_{name}.weight", layer[f"mlp.time_maa_{name}"]
    for name in ("key", "receptance", "value"):
        yield f"channel_mix_{name}.weight", layer[f"mlp.{name}.weight"]


def _describe_mamba(writer: Any, config: Mamba1Config | Mamba2Config) -> None:
    writer.add_feed_forward_length(0)
    writer.add_layer_norm_rms_eps(config.norm_epsilon)
    writer.add_ssm_conv_kernel(config.d_conv)
    writer.add_ssm_inner_size(config.d_inner)
    writer.add_ssm_state_size(config.d_state)
    if isinstance(config, Mamba2Config):
        writer.add_ssm_time_step_rank(config.nheads)
        writer.add_ssm_group_count(config.ngroups)
    else:
        writer.add_ssm_time_step_rank(config.time_step_rank)
        writer.add_ssm_dt_b_c_rms(config.bcdt_rms)


def _describe_rwkv6(writer: Any, config: RWKV6Config) -> None:
    writer.add_feed_forward_length(config.mlp_width)
    writer.add_layer_norm_eps(config.norm_epsilon)
    writer.add_wkv_head_size(config.headdim)
    writer.add_time_mix_extra_dim(config.proj_low_rank_dim)
    writer.add_time_decay_extra_dim(config.gate_low_rank_dim)
    writer.add_rescale_every_n_layers(0)
