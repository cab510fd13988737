"""Every format gives back what was put in, to the bit, with what the folder held beside it."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from everlong.checkpoints.formats import FORMATS
from everlong.errors import EverlongError, RunStopped
from everlong.loading import open_model, save
from everlong.models.architectures import create

FOLDERS_OF_MAMBA = [name for name in FORMATS if name not in ("fla", "rwkv", "rwkv.cpp")]  # the others have own files
every_format = pytest.mark.parametrize("name", FOLDERS_OF_MAMBA)


def settings(model) -> dict[str, Any]:
    """Of the configuration, what every format keeps: transformers has no padding of the vocabulary."""
    return {k: v for k, v in asdict(model.config).items() if k not in ("vocab_size", "pad_vocab_size_multiple")}


def same(model, other) -> None:
    assert model.config.architecture == other.config.architecture
    assert settings(model) == settings(other)
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name
    tokens = torch.arange(8).view(1, 8)
    assert torch.equal(model(tokens).logits, other(tokens).logits)


@every_format
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_round_trip_keeps_every_bit_and_the_settings(model, tmp_path, name, dtype):
    model = model.to(getattr(torch, dtype))
    save(model, tmp_path / "a", format=name, context=64, tokenizer="bytes")
    opened = open_model(tmp_path / "a", backend="chunked", dtype=dtype)
    assert (opened.format, opened.context, opened.tokenizer, opened.name) == (name, 64, "bytes", "a")
    same(model, opened.model)
    save(opened, tmp_path / "b")
    again = open_model(tmp_path / "b", backend="chunked", dtype=dtype)
    assert (again.format, again.context, again.tokenizer) == (name, 64, "bytes")
    assert again.config == opened.config
    same(model, again.model)


@every_format
@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_head_stays_one_parameter(tmp_path, name, tied):
    model = create("mamba2", vocab_size=16, d_model=8, n_layer=1, headdim=4, d_state=4, tie_embeddings=tied)
    save(model, tmp_path / "m", format=name)
    opened = open_model(tmp_path / "m", backend="chunked").model
    assert (opened.lm_head.weight is opened.backbone.embedding.weight) is tied
    assert sum(p.numel() for p in opened.parameters()) == sum(p.numel() for p in model.parameters())
    assert all(p.requires_grad for p in opened.parameters())


@every_format
def test_unknown_keys_and_small_files_go_along_and_weights_do_not(model, tmp_path, name):
    source = tmp_path / "source"
    save(model, source, format=name)
    config = json.loads((source / "config.json").read_text()) | {"their_own": {"x": [1, None]}}
    (source / "config.json").write_text(json.dumps(config))
    for file in ("tokenizer.json", "special_tokens_map.json", "generation_config.json", "LICENSE"):
        (source / file).write_text(file)
    for file in ("README.md", "optimizer.pt", ".hidden", "old.safetensors.index.json", "training_args.bin"):
        (source / file).write_text(file)
    opened = open_model(source, backend="chunked")
    with torch.no_grad():
        for parameter in opened.model.parameters():
            parameter.add_(1.0)
    save(opened, tmp_path / "target")
    written = {file.name for file in (tmp_path / "target").iterdir()}
    weights = "pytorch_model.bin" if name == "state-spaces" else "model.safetensors"
    assert written == {
        *("config.json", "tokenizer.json", "special_tokens_map.json", "generation_config.json", "LICENSE", weights)
    }
    assert (tmp_path / "target/tokenizer.json").read_text() == "tokenizer.json"
    assert open_model(tmp_path / "target", backend="chunked").config["their_own"] == {"x": [1, None]}
    same(opened.model, open_model(tmp_path / "target", backend="chunked").model)


@every_format
@pytest.mark.parametrize("container", ["bin", "safetensors"])
def test_the_container_is_kept(model, tmp_path, name, container):
    save(model, tmp_path / "a", format=name)
    for path in (tmp_path / "a").glob("*model.*"):
        tensors = load_file(path) if path.suffix == ".safetensors" else torch.load(path, weights_only=True)
        path.unlink()
        if container == "bin":
            torch.save(tensors, tmp_path / "a/pytorch_model.bin")
        else:
            save_file({k: v.clone() for k, v in tensors.items()}, tmp_path / "a/model.safetensors")
    opened = open_model(tmp_path / "a", backend="chunked")
    assert opened.container == container
    save(opened, tmp_path / "b")
    assert (tmp_path / "b/pytorch_model.bin").exists() is (container == "bin")
    assert (tmp_path / "b/model.safetensors").exists() is (container == "safetensors")
    same(model, open_model(tmp_path / "b", backend="chunked").model)


@every_format
@pytest.mark.parametrize("ending", ["safetensors", "bin"])
def test_shards_are_read_and_come_out_as_one_file(model, tmp_path, name, ending):
    folder = tmp_path / "sharded"
    save(model, folder, format=name)
    whole = next(folder.glob("*model.*"))
    tensors = load_file(whole) if whole.suffix == ".safetensors" else torch.load(whole, weights_only=True)
    whole.unlink()
    stem = "model" if ending == "safetensors" else "pytorch_model"
    table = {}
    for number, keys in enumerate((sorted(tensors)[::2], sorted(tensors)[1::2]), start=1):
        shard = f"{stem}-0000{number}-of-00002.{ending}"
        part = {key: tensors[key].clone() for key in keys}
        save_file(part, folder / shard) if ending == "safetensors" else torch.save(part, folder / shard)
        table |= dict.fromkeys(keys, shard)
    index = folder / f"{stem}.{ending}.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": table}))
    opened = open_model(folder, backend="chunked")
    same(model, opened.model)
    same(model, open_model(folder / f"{stem}-00002-of-00002.{ending}", backend="chunked").model)
    save(opened, tmp_path / "one")
    assert [file.name for file in (tmp_path / "one").glob("*model*")] == [f"{stem}.{ending}"]
    same(model, open_model(tmp_path / "one", backend="chunked").model)
    (folder / f"{stem}-00001-of-00002.{ending}").unlink()
    with pytest.raises(EverlongError, match=f"names the shard {stem}-00001-of-00002.{ending}, which is missing"):
        open_model(folder, backend="chunked")


def test_the_everlong_format_is_strict_json_with_the_tied_weight_once(mamba2, tmp_path):
    save(mamba2, tmp_path / "m", context=64, tokenizer="bytes")
    text = (tmp_path / "m/config.json").read_text()
    config = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))
    assert {key: config[key] for key in ("format", "architecture", "context", "tokenizer")} == {
        "format": "everlong-1",
        "architecture": "mamba2",
        "context": 64,
        "tokenizer": "bytes",
    }
    assert config["model"]["d_model"] == 16
    assert "lm_head.weight" not in load_file(tmp_path / "m/model.safetensors")


def test_state_spaces_has_exactly_the_keys_of_mamba_ssm(mamba2, tmp_path):
    save(mamba2, tmp_path / "m", format="state-spaces")
    config = json.loads((tmp_path / "m/config.json").read_text())
    assert config == {
        "d_model": 16,
        "d_intermediate": 0,
        "n_layer": 3,
        "vocab_size": 21,
        "attn_layer_idx": [],
        "attn_cfg": {},
        "rms_norm": True,
        "residual_in_fp32": True,
        "fused_add_norm": True,
        "pad_vocab_size_multiple": 16,
        "tie_embeddings": True,
        "ssm_cfg": {"layer": "Mamba2", "d_state": 6, "headdim": 8, "ngroups": 2, "dt_limit": [0.001, float("inf")]},
    }
    tensors = torch.load(tmp_path / "m/pytorch_model.bin", weights_only=True)
    mixer = (
        "dt_bias",
        "A_log",
        "D",
        "in_proj.weight",
        "conv1d.weight",
        "conv1d.bias",
        "norm.weight",
        "out_proj.weight",
    )
    layers = [f"backbone.layers.{n}.{k}" for n in range(3) for k in ("norm.weight", *(f"mixer.{m}" for m in mixer))]
    assert set(tensors) == {"backbone.embedding.weight", *layers, "backbone.norm_f.weight", "lm_head.weight"}
    assert tensors["lm_head.weight"].data_ptr() == tensors["backbone.embedding.weight"].data_ptr()


def test_the_published_configuration_of_state_spaces_is_read_and_kept(tmp_path):
    """state-spaces/mamba2-130m's config.json, word for word but for its sizes."""
    published = {
        "d_model": 16,
        "d_intermediate": 0,
        "n_layer": 2,
        "vocab_size": 29,
        "ssm_cfg": {"layer": "Mamba2"},
        "attn_layer_idx": [],
        "attn_cfg": {},
        "rms_norm": True,
        "residual_in_fp32": True,
        "fused_add_norm": True,
        "pad_vocab_size_multiple": 16,
        "tie_embeddings": True,
    }
    model = create("mamba2", vocab_size=29, d_model=16, n_layer=2, expand=4)
    published["ssm_cfg"]["expand"] = 4
    folder = tmp_path / "mamba2-130m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(published))
    torch.save(dict(model.state_dict()), folder / "pytorch_model.bin")
    opened = open_model(folder, backend="chunked")
    assert (opened.format, opened.context, opened.tokenizer, opened.container) == ("state-spaces", 2048, None, "bin")
    save(opened, tmp_path / "out")
    assert json.loads((tmp_path / "out/config.json").read_text()) == published
    assert open_model(tmp_path / "out", backend="chunked").context == 2048
    older = {key: published[key] for key in published if key not in ("tie_embeddings", "attn_cfg", "d_intermediate")}
    (folder / "config.json").write_text(json.dumps(older))
    save(open_model(folder, backend="chunked"), tmp_path / "older")
    assert json.loads((tmp_path / "older/config.json").read_text()) == older


def test_the_published_configuration_of_mamba_1_is_read_and_kept(tmp_path):
    """state-spaces/mamba-130m's config.json, word for word but for its sizes: it names no layer."""
    published = {
        "d_model": 16,
        "n_layer": 2,
        "vocab_size": 29,
        "ssm_cfg": {},
        "rms_norm": True,
        "residual_in_fp32": True,
        "fused_add_norm": True,
        "pad_vocab_size_multiple": 8,
    }
    model = create("mamba1", vocab_size=29, d_model=16, n_layer=2, backend="chunked")
    folder = tmp_path / "mamba-130m"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(published))
    torch.save(dict(model.state_dict()), folder / "pytorch_model.bin")
    opened = open_model(folder, backend="chunked")
    assert (opened.format, opened.context, opened.tokenizer, opened.container) == ("state-spaces", 2048, None, "bin")
    same(model, opened.model)
    save(opened, tmp_path / "out")
    assert json.loads((tmp_path / "out/config.json").read_text()) == published
    mixer = ("A_log", "D", "in_proj.weight", "conv1d.weight", "conv1d.bias", "x_proj.weight", "dt_proj.weight")
    mixer = (*mixer, "dt_proj.bias", "out_proj.weight")
    layers = [f"backbone.layers.{n}.{k}" for n in range(2) for k in ("norm.weight", *(f"mixer.{m}" for m in mixer))]
    names = {"backbone.embedding.weight", *layers, "backbone.norm_f.weight", "lm_head.weight"}
    assert set(torch.load(tmp_path / "out/pytorch_model.bin", weights_only=True)) == names


@pytest.mark.parametrize(("architecture", "layer"), [("mamba1", "Mamba1"), ("mamba2", "Mamba2")])
def test_a_new_state_spaces_folder_names_its_layer(tmp_path, architecture, layer):
    save(create(architecture, vocab_size=16, d_model=32, n_layer=1), tmp_path / "m", format="state-spaces")
    assert json.loads((tmp_path / "m/config.json").read_text())["ssm_cfg"] == {"layer": layer}


@pytest.mark.parametrize("name", ["everlong", "transformers"])
def test_falcon_mamba_goes_where_its_norms_are_known(falcon_mamba, tmp_path, name):
    save(falcon_mamba, tmp_path / "m", format=name)
    same(falcon_mamba, open_model(tmp_path / "m", backend="chunked").model)
    with pytest.raises(EverlongError, match="bcdt_rms is true; the state-spaces format has no norms on B, C and dt"):
        save(falcon_mamba, tmp_path / "n", format="state-spaces")


@pytest.mark.parametrize("first", FOLDERS_OF_MAMBA)
@pytest.mark.parametrize("second", FOLDERS_OF_MAMBA)
def test_from_format_to_format_no_bit_changes(model, tmp_path, first, second):
    save(model, tmp_path / "a", format=first)
    save(open_model(tmp_path / "a", backend="chunked"), tmp_path / "b", format=second)
    opened = open_model(tmp_path / "b", backend="chunked")
    assert opened.format == second
    same(model, opened.model)


@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
def test_the_dtype_in_a_transformers_configuration_follows_the_tensors(model, tmp_path, key):
    save(model, tmp_path / "a", format="transformers")
    config = json.loads((tmp_path / "a/config.json").read_text())
    del config["dtype"]
    (tmp_path / "a/config.json").write_text(json.dumps(config | {key: "bfloat16"}))
    opened = open_model(tmp_path / "a", backend="chunked")
    save(opened, tmp_path / "b")
    save(replace(opened, model=opened.model.bfloat16()), tmp_path / "c")
    for folder, name, dtype in (("b", "float32", torch.float32), ("c", "bfloat16", torch.bfloat16)):
        written = json.loads((tmp_path / folder / "config.json").read_text())
        assert {k: v for k, v in written.items() if "dtype" in k} == {key: name}
        assert {t.dtype for t in load_file(tmp_path / folder / "model.safetensors").values()} == {dtype}


@every_format
def test_an_existing_target_is_refused_and_untouched(model, tmp_path, name):
    (tmp_path / "m").mkdir()
    with pytest.raises(EverlongError, match="exists already"):
        save(model, tmp_path / "m", format=name)
    assert list((tmp_path / "m").iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("name", ["everlong", "state-spaces"])
@pytest.mark.parametrize(
    ("failure", "kind"),
    [(OSError(28, "No space left on device"), RunStopped), (PermissionError(13, "Permission denied"), EverlongError)],
)
def test_a_failed_write_leaves_nothing(model, tmp_path, monkeypatch, name, failure, kind):
    def fail(*args, **kwargs):
        raise failure

    monkeypatch.setattr("everlong.checkpoints._writing.save_file", fail)
    monkeypatch.setattr("everlong.checkpoints._writing.torch.save", fail)
    with pytest.raises(EverlongError, match=failure.strerror) as error:
        save(model, tmp_path / "m", format=name)
    assert type(error.value) is kind
    assert list(Path(tmp_path).iterdir()) == []


def test_what_a_format_cannot_hold_is_refused(tmp_path):
    model = create("mamba2", vocab_size=16, d_model=8, n_layer=1, headdim=4, norm_epsilon=1e-6)
    with pytest.raises(EverlongError, match="norm_epsilon is 1e-06; the state-spaces format has 1e-05 only"):
        save(model, tmp_path / "m", format="state-spaces")
    with pytest.raises(EverlongError, match="unknown checkpoint format 'onnx'; known: everlong, fla, rwkv, "):
        save(model, tmp_path / "m", format="onnx")
    assert list(tmp_path.iterdir()) == []
