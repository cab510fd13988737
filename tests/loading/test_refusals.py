"""What bad input gets: one line that names it."""

import json
import random
from pathlib import Path

import huggingface_hub
import pytest
import torch

from everlong.loading import load, open_model, save
from everlong.models.architectures import create
from tests.loading.folders import edit, every_format, refusal, rewrite, tensors_of


@pytest.mark.parametrize("request_", ["./runs/none", "/nowhere/at/all", "none", "a/b/c", "~/none-such", "-x/y", ""])
def test_a_missing_path_that_is_no_hub_id_is_not_asked_of_the_hub(request_, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: pytest.fail("asked the hub"))
    assert "MODEL is a folder" in refusal(request_)


def test_a_folder_without_a_configuration_or_without_weights(folder):
    path = folder("transformers")
    (path / "model.safetensors").rename(path / "other.txt")
    assert "has a config.json and no weights (half-written?); one of model.safetensors, " in refusal(path)
    (path / "config.json").unlink()
    assert f"{path} has no config.json" in refusal(path)
    assert "is no model; give its folder" in refusal(path / "other.txt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"d_model": 16,', "is not JSON (half-written?)"),
        ("", "is not JSON (half-written?)"),
        ("[1, 2]", "holds a list, a JSON object is needed"),
        ("{}", "is of no known checkpoint format: everlong has"),
        (b"\xff\xfe{", "cannot be read"),
        ('{"model_type": "llama"}', "model_type is 'llama'; known: falcon_mamba, mamba, mamba2"),
        ('{"format": "everlong-9"}', "format is 'everlong-9'; this version of Everlong reads 'everlong-1'"),
        ('{"format": "everlong-1", "architecture": "lstm"}', "unknown architecture 'lstm'; known: "),
        ('{"format": "everlong-1", "architecture": ["x"]}', "unknown architecture ['x']; known: "),
        ('{"format": "everlong-1", "architecture": "mamba2"}', '"model" is None; it must hold the fields'),
        ('{"format": "everlong-1", "architecture": "mamba2", "model": {"x": 1}}', "mamba2 has no setting x; known: v"),
        ('{"format": "everlong-1", "architecture": "mamba2", "model": {}}', "vocab_size is missing"),
        ('{"d_model": 16, "n_layer": 1, "ssm_cfg": {"layer": "Mamba2"}}', "vocab_size is missing"),
        ('{"d_model": 16, "n_layer": 1, "ssm_cfg": 3}', "ssm_cfg is 3; it must be an object"),
        (
            '{"d_model": 16, "n_layer": 1, "vocab_size": 5, "ssm_cfg": {"layer": "Mamba3"}}',
            "ssm_cfg.layer is 'Mamba3'; known: Mamba1, Mamba2",
        ),
    ],
)
def test_a_configuration_that_cannot_be_used(folder, content, message):
    path = folder("everlong")
    (path / "config.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    found = refusal(path)
    assert message in found
    assert str(path / "config.json") in found


@pytest.mark.parametrize(
    ("change", "inner", "message"),
    [
        ({"attn_layer_idx": [3, 9]}, None, "attn_layer_idx is [3, 9]; Everlong's mamba2 has [] only"),
        ({"d_intermediate": 64}, None, "d_intermediate is 64; Everlong's mamba2 has 0 only"),
        ({"rms_norm": False}, None, "rms_norm is False; Everlong's mamba2 has True only"),
        ({"norm_epsilon": 1e-6}, None, "norm_epsilon is 1e-06; Everlong's mamba2 has 1e-05 only"),
        ({"norm_before_gate": True}, "ssm_cfg", "ssm_cfg.norm_before_gate is True; Everlong's mamba2 has False only"),
        ({"D_has_hdim": True}, "ssm_cfg", "ssm_cfg.D_has_hdim is True; Everlong's mamba2 has False only"),
        ({"rmsnorm": False}, "ssm_cfg", "ssm_cfg.rmsnorm is False; Everlong's mamba2 has True only"),
        ({"d_ssm": 16}, "ssm_cfg", "ssm_cfg.d_ssm is 16; Everlong's mamba2 has 32 only"),
        ({"twist": 1}, "ssm_cfg", "ssm_cfg has twist; known: "),
    ],
)
def test_features_of_state_spaces_that_everlong_does_not_have(folder, change, inner, message):
    path = folder("state-spaces")
    edit(path, change, inner)
    assert message in refusal(path)


def test_harmless_settings_of_state_spaces_are_read(folder):
    path = folder("state-spaces")
    edit(path, {"chunk_size": 128, "use_mem_eff_path": False, "d_ssm": 32, "conv_init": None}, "ssm_cfg")
    assert open_model(path).format == "state-spaces"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; Everlong's mamba2 has silu only"),
        ({"num_heads": 5}, "num_heads is 5, but expand * hidden_size / head_dim is 4"),
        ({"hidden_size": "16"}, "hidden_size is '16'; it must be of type int"),
        ({"use_bias": 1}, "use_bias is 1; it must be of type bool"),
        ({"time_step_limit": [0.0]}, "time_step_limit is [0.0]; it must be a list of 2 numbers"),
        ({"num_hidden_layers": 0}, "n_layer is 0; it must be at least 1"),
    ],
)
def test_what_a_transformers_configuration_may_not_say(folder, change, message):
    path = folder("transformers")
    edit(path, change)
    assert message in refusal(path)


CONTRADICTIONS: dict[str, tuple[int, str]] = {
    "n_layer": (4, "says {key} 4, the weights hold 3 layers"),
    "d_model": (32, "says {key} 32, {embedding} is 16 wide"),
    "vocab_size": (64, "{embedding} has 32 rows"),
    "d_conv": (3, "says {key} 3, backbone.layers.0.mixer.conv1d.weight has 4"),
    "headdim": (16, "says {key} 16, which makes 2, backbone.layers.0.mixer.A_log has 4"),
    "expand": (4, "says {key} 4, which makes 64, backbone.layers.0.mixer.norm.weight has 32"),
    "d_state": (16, "says {key} 16, which makes 64, backbone.layers.0.mixer.conv1d.weight has 48"),
}
THEIRS: dict[str, str] = {
    "n_layer": "num_hidden_layers",
    "d_model": "hidden_size",
    "d_conv": "conv_kernel",
    "headdim": "head_dim",
    "d_state": "state_size",
}


@every_format
@pytest.mark.parametrize("field", list(CONTRADICTIONS))
def test_a_size_that_contradicts_the_weights_is_named_with_both_numbers(folder, name, field: str):
    path = folder(name)
    value, message = CONTRADICTIONS[field]
    ours = name != "transformers"
    key = field if ours else THEIRS.get(field, field)
    inner = {"everlong": "model", "state-spaces": "ssm_cfg", "transformers": None}[name]
    if name == "state-spaces" and field in ("n_layer", "d_model", "vocab_size"):
        inner = None
    heads = {"headdim": 32 // value, "d_model": 8, "expand": 8} if not ours else {}
    edit(path, {key: value} | ({"num_heads": heads[field]} if field in heads else {}), inner)
    found = refusal(path)
    embedding = "backbone.embedding.weight" if ours else "backbone.embeddings.weight"
    assert message.format(key=key, embedding=embedding) in found
    assert str(path / "config.json") in found


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("expand", 4, "says expand 4, which makes 64, backbone.layers.0.mixer.A_log has 32"),
        ("d_state", 8, "says d_state 8, backbone.layers.0.mixer.A_log has 16"),
        ("dt_rank", 2, "says dt_rank 2, backbone.layers.0.mixer.dt_proj.weight has 1"),
        ("d_conv", 3, "says d_conv 3, backbone.layers.0.mixer.conv1d.weight has 4"),
        ("dt_rank", "much", "dt_rank is 'much'; it must be of type int, or auto"),
        ("dt_rank", 0, "dt_rank is 0; it must be at least 1, or auto"),
        ("dt_init", "ones", "dt_init is 'ones'; known: random, constant"),
        ("headdim", 8, "ssm_cfg has headdim; known: "),
    ],
)
def test_a_mamba_1_folder_that_contradicts_itself(tmp_path, field, value, message):
    save(create("mamba1", vocab_size=32, d_model=16, n_layer=1), tmp_path / "model", format="state-spaces")
    edit(tmp_path / "model", {field: value}, "ssm_cfg")
    assert message in refusal(tmp_path / "model")


def test_a_width_that_no_whole_expand_gives_is_refused(tmp_path):
    save(create("mamba1", vocab_size=32, d_model=16, n_layer=1), tmp_path / "model", format="transformers")
    edit(tmp_path / "model", {"intermediate_size": 40})
    assert "intermediate_size is 40, but expand * hidden_size is 32" in refusal(tmp_path / "model")


@every_format
def test_missing_and_unexpected_tensors_are_named(folder, name):
    path = folder(name)
    rewrite(path, lambda tensors: tensors.update({"backbone.layers.1.mixer.twist": torch.zeros(1)}))
    assert "has backbone.layers.1.mixer.twist, which its config.json has no place for" in refusal(path)
    rewrite(path, lambda t: [t.pop(k) for k in ("backbone.layers.1.mixer.twist", "backbone.norm_f.weight")])
    assert "lacks backbone.norm_f.weight, which its config.json asks for" in refusal(path)
    rewrite(path, lambda t: [t.pop(k) for k in list(t) if ".1.mixer" in k])
    assert "lacks backbone.layers.1.mixer.A_log, " in refusal(path)
    assert " and 6 more, which its config.json asks for" in refusal(path)


@every_format
def test_a_single_tensor_of_the_wrong_shape_is_named_with_both_shapes(folder, name):
    path = folder(name)
    rewrite(path, lambda tensors: tensors.update({"backbone.layers.2.mixer.D": torch.zeros(7)}))
    assert "makes backbone.layers.2.mixer.D [4], " in refusal(path)
    assert "holds [7]" in refusal(path)


def test_a_head_that_should_be_tied_and_differs(folder):
    path = folder("state-spaces")
    rewrite(path, lambda tensors: tensors["lm_head.weight"].mul_(2))
    assert "tie_embeddings true, but lm_head.weight and backbone.embedding.weight differ" in refusal(path)


@every_format
@pytest.mark.parametrize(("value", "word"), [(float("nan"), "NaN"), (float("-inf"), "infinity")])
def test_weights_that_are_not_finite_are_named(folder, name, value, word):
    path = folder(name)
    rewrite(path, lambda tensors: tensors["backbone.layers.1.mixer.out_proj.weight"][3].fill_(value))
    assert f"backbone.layers.1.mixer.out_proj.weight holds {word}" in refusal(path)


def test_weights_too_large_for_the_dtype_are_named(folder):
    path = folder("everlong")
    rewrite(path, lambda tensors: tensors["backbone.norm_f.weight"].fill_(1e6))
    assert open_model(path, backend="chunked").model.dtype is torch.float32
    assert "backbone.norm_f.weight holds infinity (as torch.float16)" in refusal(path, dtype="float16")


def test_quantised_weights_are_refused(folder):
    path = folder("everlong")
    rewrite(path, lambda t: t.update({"backbone.norm_f.weight": torch.ones(16, dtype=torch.int8)}))
    assert "backbone.norm_f.weight is torch.int8; floating weights are needed" in refusal(path)


@every_format
def test_torn_weights_are_one_line_wherever_they_were_cut(folder, name):
    path = folder(name)
    file, _ = tensors_of(path)
    content = file.read_bytes()
    random.seed(0)
    cuts = {0, 1, 7, 8, 100, len(content) // 2, len(content) - 1, *(random.randrange(len(content)) for _ in range(20))}
    for cut in sorted(cuts):
        file.write_bytes(content[:cut])
        assert f"{file} is torn or no " in refusal(path), cut
    file.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert "is a git-lfs pointer" in refusal(path)
    file.write_text("<html>not found</html>")
    assert "is torn or no " in refusal(path)


class Trap:
    """Unpickled, it would leave a mark."""

    mark: Path

    def __reduce__(self):
        return (Path.touch, (self.mark,))


@pytest.mark.parametrize("legacy", [False, True])
def test_no_code_is_unpickled(folder, tmp_path, legacy):
    path = folder("state-spaces")
    Trap.mark = tmp_path / "mark"
    torch.save({"x": Trap()}, path / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    message = refusal(path)
    assert "never unpickles code" in message or "is torn or no PyTorch file" in message
    assert not Trap.mark.exists()
    torch.save({"x": torch.zeros(2), "step": 3}, path / "pytorch_model.bin")
    assert "is no state dict: it must be a dictionary of tensors by name" in refusal(path)
    torch.save([torch.zeros(2)], path / "pytorch_model.bin")
    assert "is no state dict" in refusal(path)


def test_a_legacy_bin_is_read(folder):
    path = folder("state-spaces")
    tensors = tensors_of(path)[1]
    torch.save(tensors, path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    assert torch.equal(load(path).backbone.norm_f.weight, tensors["backbone.norm_f.weight"])


@pytest.mark.parametrize("name", ["everlong", "transformers"])
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"context": 0}, "context is 0; it must be a number of tokens, at least 1, or null"),
        ({"context": "64"}, "context is '64'; it must be a number of tokens"),
        ({"tokenizer": 3}, 'tokenizer is 3; it must be "bytes", a path, an id, or null'),
    ],
)
def test_settings_that_make_no_sense(folder, name, settings, message):
    path = folder(name)
    if name == "everlong":
        edit(path, settings)
    else:
        (path / "everlong.json").write_text(json.dumps(settings))
    assert message in refusal(path)


def test_an_unknown_dtype_device_or_backend_lists_the_known_ones(folder):
    path = folder("everlong")
    assert refusal(path, dtype="int8") == "dtype is 'int8'; known: float32, bfloat16, float16, float64"
    assert refusal(path, dtype=torch.complex64).startswith("dtype is 'complex64'; known: float32")
    assert "device 'warp' cannot be used here" in refusal(path, device="warp")
    assert "unknown backend 'abacus'; known: auto, chunked" in refusal(path, backend="abacus")


@pytest.mark.skipif(torch.cuda.is_available(), reason="shows what a machine without CUDA says")
def test_a_device_that_is_not_there_is_one_line(folder):
    assert "device 'cuda' cannot be used here" in refusal(folder("everlong"), device="cuda")
