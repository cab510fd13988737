"""fla's folders: what is written is what fla reads, every bit comes back, and what Everlong lacks is named."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from everlong.errors import EverlongError
from everlong.loading import open_model, save
from everlong.models.architectures import create
from everlong.models.language_model import LanguageModel

SIZES: dict[str, dict[str, Any]] = {
    "gla": {"vocab_size": 13, "d_model": 16, "n_layer": 2, "num_heads": 2, "intermediate_size": 24},
    "rwkv6": {"vocab_size": 13, "d_model": 32, "n_layer": 2, "headdim": 8, "expand_k": 0.5},
}
every_architecture = pytest.mark.parametrize("architecture", list(SIZES))


def made(architecture: str, **settings: Any) -> LanguageModel:
    torch.manual_seed(3)
    model = create(architecture, **{**SIZES[architecture], **settings})
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def edit(folder: Path, **change: Any) -> Path:
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def same(model: LanguageModel, other: LanguageModel) -> None:
    assert other.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


@every_architecture
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_round_trip_keeps_every_bit_and_the_settings(architecture, tied, dtype, tmp_path):
    model = made(architecture, tie_embeddings=tied).to(getattr(torch, dtype))
    save(model, tmp_path / "a", format="fla", context=64, tokenizer="bytes")
    opened = open_model(tmp_path / "a", backend="chunked", dtype=dtype)
    assert (opened.format, opened.context, opened.tokenizer) == ("fla", 64, "bytes")
    same(model, opened.model)
    assert (opened.model.lm_head.weight is opened.model.backbone.embedding.weight) is tied
    save(opened, tmp_path / "b")
    again = open_model(tmp_path / "b", backend="chunked", dtype=dtype)
    assert again.config == opened.config
    same(model, again.model)


@every_architecture
def test_shards_are_read(architecture, tmp_path):
    model = made(architecture)
    save(model, tmp_path / "a", format="fla")
    tensors = load_file(tmp_path / "a/model.safetensors")
    (tmp_path / "a/model.safetensors").unlink()
    table = {}
    for number, names in enumerate((sorted(tensors)[::2], sorted(tensors)[1::2]), start=1):
        shard = f"model-0000{number}-of-00002.safetensors"
        save_file({name: tensors[name] for name in names}, tmp_path / "a" / shard)
        table |= dict.fromkeys(names, shard)
    (tmp_path / "a/model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": table}))
    same(model, open_model(tmp_path / "a", backend="chunked").model)


@every_architecture
@pytest.mark.parametrize("tied", [True, False])
def test_a_padded_vocabulary_goes_in_with_all_its_rows(architecture, tied, tmp_path):
    model = made(architecture, pad_vocab_size_multiple=8, tie_embeddings=tied)
    save(model, tmp_path / "a", format="fla")
    opened = open_model(tmp_path / "a", backend="chunked").model
    assert opened.config.vocab_size == model.config.padded_vocab_size == 16
    for name, tensor in model.state_dict().items():
        assert torch.equal(opened.state_dict()[name], tensor), name


def test_the_tensors_have_the_names_and_shapes_of_fla(tmp_path):
    save(made("rwkv6", n_layer=1), tmp_path / "rwkv6", format="fla")
    attention = {
        "bonus": [2, 8],
        "g_norm.bias": [32],
        "g_norm.weight": [32],
        "g_proj.linear.weight": [32, 32],
        "k_proj.linear.weight": [16, 32],
        "o_proj.weight": [32, 32],
        "r_proj.linear.weight": [16, 32],
        "v_proj.linear.weight": [32, 32],
        "w_proj.linear.lora.0.weight": [64, 32],
        "w_proj.linear.lora.2.bias": [16],
        "w_proj.linear.lora.2.weight": [16, 64],
        "x_bias": [5, 32],
        "x_proj.0.linear.weight": [160, 32],
        "x_proj.0.mu": [32],
        "x_proj.2.weight": [32, 160],
    }
    feed_forward = {
        "key.linear.weight": [128, 32],
        "key.mu": [32],
        "receptance.linear.weight": [32, 32],
        "receptance.mu": [32],
        "value.weight": [32, 128],
    }
    norms = {f"{norm}.{part}": [32] for norm in ("pre_norm", "attn_norm", "ffn_norm") for part in ("weight", "bias")}
    layer = {f"attn.{name}": shape for name, shape in attention.items()}
    layer |= {f"ffn.{name}": shape for name, shape in feed_forward.items()} | norms
    wanted = {f"model.layers.0.{name}": shape for name, shape in layer.items()}
    wanted |= {"model.embeddings.weight": [13, 32], "lm_head.weight": [13, 32]}
    wanted |= {"model.norm.weight": [32], "model.norm.bias": [32]}
    found = load_file(tmp_path / "rwkv6/model.safetensors")
    assert {name: list(tensor.shape) for name, tensor in found.items()} == wanted


def test_what_fla_writes_is_read_and_kept(tmp_path):
    """The keys of GLAConfig().to_diff_dict-like files: absent ones take fla's defaults, unknown ones stay."""
    model = made("gla", intermediate_size=0, num_heads=4)
    save(model, tmp_path / "a", format="fla")
    published = {
        "architectures": ["GLAForCausalLM"],
        "model_type": "gla",
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "vocab_size": 13,
        "attn_mode": "chunk",
        "fuse_norm": True,
        "hidden_ratio": 4,
        "intermediate_size": None,
        "max_position_embeddings": 2048,
        "norm_eps": 1e-06,
        "torch_dtype": "float32",
        "transformers_version": "4.51.3",
        "use_cache": True,
    }
    (tmp_path / "a/config.json").write_text(json.dumps(published))
    opened = open_model(tmp_path / "a", backend="chunked")
    same(model, opened.model)
    save(opened, tmp_path / "b")
    written = json.loads((tmp_path / "b/config.json").read_text())
    assert {key: written[key] for key in published} == published
    assert "residual_in_fp32" not in written


def test_a_gla_without_the_fused_norm_is_read(tmp_path):
    model = made("gla")
    save(model, tmp_path / "a", format="fla")
    path = tmp_path / "a/model.safetensors"
    save_file({name.replace("g_norm_swish_gate", "g_norm"): t for name, t in load_file(path).items()}, path)
    same(model, open_model(edit(tmp_path / "a", fuse_norm=False), backend="chunked").model)


@pytest.mark.parametrize(
    ("architecture", "change", "message"),
    [
        ("gla", {"num_kv_heads": 1}, "num_kv_heads is 1; Everlong's gla has as many as num_heads only"),
        ("gla", {"feature_map": "relu"}, "feature_map is 'relu'; Everlong's gla has None only"),
        ("gla", {"clamp_min": -1.0}, "clamp_min is -1.0; Everlong's gla has None only"),
        ("gla", {"attn": {"layers": [1]}}, "attn is {'layers': [1]}; Everlong's gla has None only"),
        ("gla", {"num_heads": 3}, "num_heads 3 does not divide expand_k * d_model = 8"),
        ("gla", {"hidden_size": "16"}, "hidden_size is '16'; it must be of type int"),
        ("gla", {"num_hidden_layers": 5}, "says num_hidden_layers 5, the weights hold 2 layers"),
        ("gla", {"expand_k": 1.0}, "says expand_k 1.0, which makes 16, model.layers.0.attn.q_proj.weight has 8"),
        ("rwkv6", {"hidden_act": "relu"}, "hidden_act is 'relu'; Everlong's rwkv6 has 'sqrelu' only"),
        ("rwkv6", {"norm_first": False}, "norm_first is False; Everlong's rwkv6 has True only"),
        ("rwkv6", {"num_heads": 5}, "num_heads is 5; it must divide expand_k * hidden_size = 16"),
        ("gla", {"expand_v": 2.0}, "says expand_v 2.0, which makes 32, model.layers.0.attn.v_proj.weight has 16"),
        (
            "gla",
            {"num_heads": 1},
            "says num_heads 1, which makes 16, model.layers.0.attn.g_norm_swish_gate.weight has 8",
        ),
        ("gla", {"intermediate_size": 32}, "says intermediate_size 32, model.layers.0.mlp.gate_proj.weight has 24"),
        (
            "gla",
            {"intermediate_size": None},
            "says hidden_ratio 4.0, which makes 256, model.layers.0.mlp.gate_proj.weight has 24",
        ),
        ("gla", {"hidden_size": 32}, "says hidden_size 32, model.embeddings.weight is 16 wide"),
        ("gla", {"vocab_size": 14}, "says vocab_size 14, model.embeddings.weight has 13 rows"),
        (
            "rwkv6",
            {"proj_low_rank_dim": 4},
            "says proj_low_rank_dim 4, which makes 20, model.layers.0.attn.x_proj.0.linear.weight has 160",
        ),
        (
            "rwkv6",
            {"gate_low_rank_dim": 8},
            "says gate_low_rank_dim 8, model.layers.0.attn.w_proj.linear.lora.0.weight has 64",
        ),
        (
            "rwkv6",
            {"num_heads": 4},
            "says expand_k * hidden_size / num_heads 4, model.layers.0.attn.bonus has 8",
        ),
        (
            "rwkv6",
            {"expand_k": 1.0},
            "says expand_k 1.0, which makes 32, model.layers.0.attn.r_proj.linear.weight has 16",
        ),
        (
            "rwkv6",
            {"expand_v": 2.0},
            "says expand_v 2.0, which makes 64, model.layers.0.attn.v_proj.linear.weight has 32",
        ),
        (
            "rwkv6",
            {"hidden_ratio": 2},
            "says hidden_ratio 2.0, which makes 64, model.layers.0.ffn.key.linear.weight has 128",
        ),
        ("rwkv6", {"attention_hidden_size": 32}, "is of transformers' own rwkv6 code, not of fla; give BlinkDL's"),
    ],
)
def test_what_a_configuration_may_not_say(architecture, change, message, tmp_path):
    save(made(architecture), tmp_path / "m", format="fla")
    with pytest.raises(EverlongError) as error:
        open_model(edit(tmp_path / "m", **change), backend="chunked")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert "config.json" in str(error.value)


@every_architecture
def test_missing_and_unexpected_tensors_are_named_as_fla_names_them(architecture, tmp_path):
    save(made(architecture), tmp_path / "m", format="fla")
    path = tmp_path / "m/model.safetensors"
    tensors = load_file(path)
    gone = "model.layers.1.attn." + ("x_proj.2.weight" if architecture == "rwkv6" else "gk_proj.1.bias")
    save_file({name: tensor for name, tensor in tensors.items() if name != gone}, path)
    with pytest.raises(EverlongError, match=f"lacks {gone}, which its config.json asks for"):
        open_model(tmp_path / "m", backend="chunked")
    save_file(tensors | {"model.layers.1.attn.twist": torch.zeros(1)}, path)
    with pytest.raises(EverlongError, match=r"has model.layers.1.attn.twist, which its config.json has no place for"):
        open_model(tmp_path / "m", backend="chunked")


def test_what_fla_cannot_hold_is_refused(tmp_path):
    with pytest.raises(EverlongError, match="gate_low_rank_dim is 8 and gate_logit_normalizer 16; the fla format has"):
        save(made("gla", gate_low_rank_dim=8), tmp_path / "m", format="fla")
    with pytest.raises(EverlongError, match=r"group_norm_epsilon is 3e-05 .*needs their ratio to be a power of 4"):
        save(made("rwkv6", group_norm_epsilon=3e-5), tmp_path / "m", format="fla")
    with pytest.raises(EverlongError, match="the fla format holds gla, rwkv6 models, this one is mamba2"):
        save(create("mamba2", vocab_size=8, d_model=8, n_layer=1, headdim=4), tmp_path / "m", format="fla")
    assert list(tmp_path.iterdir()) == []
