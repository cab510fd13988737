"""RWKV-6 in one file: BlinkDL's .pth both ways, and rwkv.cpp's .bin read, floats and blocks of five and eight bits."""

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from everlong.checkpoints.rwkv_cpp import read_tensors
from everlong.errors import EverlongError
from everlong.loading import open_model, save
from everlong.models.architectures import create
from everlong.models.language_model import LanguageModel


@pytest.fixture
def rwkv6() -> LanguageModel:
    torch.manual_seed(2)
    sizes: dict[str, Any] = {"vocab_size": 11, "d_model": 32, "n_layer": 2, "headdim": 16, "gate_low_rank_dim": 32}
    model = create("rwkv6", intermediate_size=64, **sizes)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def same(model: LanguageModel, other: LanguageModel) -> None:
    assert other.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(other.state_dict()[name], tensor), name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_folder_and_its_file_give_the_model_back(rwkv6, tmp_path, dtype):
    model = rwkv6.to(getattr(torch, dtype))
    save(model, tmp_path / "a", format="rwkv", context=256, tokenizer="bytes")
    assert {file.name for file in (tmp_path / "a").iterdir()} == {"model.pth", "everlong.json"}
    (tmp_path / "a/LICENSE").write_text("MIT")
    by_folder = open_model(tmp_path / "a", backend="chunked", dtype=dtype)
    by_file = open_model(tmp_path / "a/model.pth", backend="chunked", dtype=dtype)
    for opened, name, copied in ((by_folder, "a", {"LICENSE"}), (by_file, "model", set())):
        assert (opened.format, opened.name, opened.context, opened.tokenizer) == ("rwkv", name, 256, "bytes")
        same(model, opened.model)
        save(opened, tmp_path / name / "again")
        written = {file.name for file in (tmp_path / name / "again").iterdir()}
        assert written == {"model.pth", "everlong.json"} | copied
        same(model, open_model(tmp_path / name / "again", backend="chunked", dtype=dtype).model)


def test_the_tensors_have_the_shapes_of_rwkv_lm(rwkv6, tmp_path):
    save(rwkv6, tmp_path / "a", format="rwkv")
    tensors = torch.load(tmp_path / "a/model.pth", weights_only=True)
    shapes = {name: list(tensor.shape) for name, tensor in tensors.items()}
    assert shapes["blocks.0.ln0.weight"] == [32]
    assert "blocks.1.ln0.weight" not in shapes
    assert shapes["blocks.1.att.time_maa_x"] == shapes["blocks.1.att.time_decay"] == [1, 1, 32]
    assert shapes["blocks.1.ffn.time_maa_r"] == [1, 1, 32]
    assert shapes["blocks.1.att.time_maa_w1"] == [32, 160]
    assert shapes["blocks.1.att.time_maa_w2"] == [5, 32, 32]
    assert shapes["blocks.1.att.time_faaaa"] == [2, 16]
    assert shapes["blocks.1.ffn.key.weight"] == [64, 32]


def test_the_context_stands_in_a_published_file_s_name(rwkv6, tmp_path):
    save(rwkv6, tmp_path / "a", format="rwkv")
    file = (tmp_path / "a/model.pth").rename(tmp_path / "a/RWKV-x060-World-1B6-v2.1-20240328-ctx4096.pth")
    assert open_model(file, backend="chunked").context == 4096


def test_a_tied_head_is_found_to_be_tied(tmp_path):
    model = create("rwkv6", vocab_size=11, d_model=32, n_layer=1, headdim=16, tie_embeddings=True, intermediate_size=32)
    save(model, tmp_path / "a", format="rwkv")
    opened = open_model(tmp_path / "a", backend="chunked").model
    assert opened.lm_head.weight is opened.backbone.embedding.weight


def test_what_a_pth_cannot_hold_or_be_is_one_line(rwkv6, tmp_path):
    with pytest.raises(EverlongError, match="the rwkv format holds rwkv6 models, this one is mamba2"):
        save(create("mamba2", vocab_size=8, d_model=8, n_layer=1, headdim=4), tmp_path / "m", format="rwkv")
    with pytest.raises(EverlongError, match=r"group_norm_epsilon is 1e-05; the rwkv format has 0.00064 only"):
        save(
            create("rwkv6", vocab_size=8, d_model=64, n_layer=1, group_norm_epsilon=1e-5), tmp_path / "m", format="rwkv"
        )
    with pytest.raises(EverlongError, match=r"the rwkv.cpp format is read only; save the model in another format"):
        save(rwkv6, tmp_path / "m", format="rwkv.cpp")
    assert list(tmp_path.iterdir()) == []
    save(rwkv6, tmp_path / "m", format="rwkv")
    path, tensors = tmp_path / "m/model.pth", torch.load(tmp_path / "m/model.pth", weights_only=True)
    cases: list[tuple[dict[str, Tensor], str]] = [
        ({}, "is no RWKV-6 model: it has no blocks.0.att.time_maa_w2 of 3 axes"),
        ({"blocks.0.att.time_mix_k": torch.zeros(2)}, "is no RWKV-6 model: it looks like RWKV-4 or RWKV-5"),
        (
            {**tensors, "blocks.1.att.twist": torch.zeros(2)},
            "has blocks.1.att.twist, which an RWKV-6 model has no place",
        ),
        (
            {n: t for n, t in tensors.items() if n != "ln_out.bias"},
            "lacks ln_out.bias, which its other tensors ask for",
        ),
        (tensors | {"blocks.1.ffn.value.weight": torch.zeros(3, 3)}, "makes blocks.1.ffn.value.weight [32, 64], "),
        (tensors | {"emb.weight": torch.full((11, 32), torch.nan)}, "emb.weight holds NaN"),
    ]
    for content, message in cases:
        torch.save(content, path)
        with pytest.raises(EverlongError) as error:
            open_model(path, backend="chunked")
        assert message in str(error.value)
        assert "\n" not in str(error.value)
        assert "config.json" not in str(error.value)


def rwkv_cpp(model: LanguageModel, folder: Path, path: Path, kind: int, version: int = 101) -> dict[str, Tensor]:
    """Writes a file as rwkv.cpp's converter and quantiser do, and returns the matrices' rounded values by key."""
    save(model, folder, format="rwkv")
    rounded: dict[str, Tensor] = {}
    config = model.config
    content = struct.pack("<6i", 0x67676D66, version, config.vocab_size, config.d_model, config.n_layer, kind)
    for key, tensor in torch.load(folder / "model.pth", weights_only=True).items():
        value = tensor.squeeze() if ".time_" in key else tensor
        if ".time_faaaa" in key or (".time_decay" in key and value.ndim == 1):
            value = value.view(-1, 16, 1)  # heads of 16
        if ".time_maa_w1" in key or ".time_decay_w" in key:
            value = value.T
        if ".time_maa_w2" in key:
            value = value.transpose(1, 2)
        matrix = value.ndim == 2 and key not in ("emb.weight", "head.weight")
        data, values = PACKERS[kind if matrix else 0](value.contiguous().numpy())
        rounded[key] = torch.from_numpy(values).view(value.shape)
        name = key.encode()
        content += struct.pack("<3i", value.ndim, len(name), kind if matrix else 0)
        content += struct.pack(f"<{value.ndim}i", *reversed(value.shape)) + name + data
    path.write_bytes(content)
    return rounded


def pack_blocks(values: np.ndarray, bits: int, minimum: bool) -> tuple[bytes, np.ndarray]:
    """Blocks of 32, one value after the other, as ggml lays them out."""
    data, rounded = b"", []
    top, half = 2**bits - 1, 2 ** (bits - 1)
    for block in values.reshape(-1, 32).astype(np.float32):
        low = np.float16(block.min() if minimum else 0)
        span = block.max() - block.min() if minimum else 2 * abs(block).max() * top / (top - 1)
        scale = np.float16(span / top)
        steps = np.rint((block - np.float32(low)) / np.float32(scale)) + (0 if minimum else half)
        q = steps.clip(0, top).astype(int)
        data += scale.tobytes() + (low.tobytes() if minimum else b"")
        if bits == 5:
            data += struct.pack("<I", sum((int(v) >> 4) << i for i, v in enumerate(q)))
            data += bytes((int(q[i]) & 15) | (int(q[i + 16]) & 15) << 4 for i in range(16))
        else:
            data += (q - half).astype(np.int8).tobytes()
        rounded.append((q - (0 if minimum else half)) * np.float32(scale) + np.float32(low))
    return data, np.concatenate(rounded).astype(np.float32)


PACKERS: dict[int, Any] = {
    0: lambda values: (values.astype("<f4").tobytes(), values.ravel()),
    1: lambda values: (values.astype("<f2").tobytes(), values.astype("<f2").astype(np.float32).ravel()),
    7: lambda values: pack_blocks(values, 5, False),
    8: lambda values: pack_blocks(values, 5, True),
    9: lambda values: pack_blocks(values, 8, False),
}
"""By rwkv.cpp's number of a type: the bytes, and the values that they stand for."""


@pytest.mark.parametrize(
    ("kind", "error"),
    [(0, 0.0), (1, 0.001), (7, 0.05), (8, 0.05), (9, 0.006)],
    ids=["fp32", "fp16", "q5_0", "q5_1", "q8_0"],
)
def test_every_type_of_rwkv_cpp_is_read_exactly(rwkv6, tmp_path, kind, error):
    rounded = rwkv_cpp(rwkv6, tmp_path / "pth", tmp_path / "m.bin", kind)
    for name, tensor in read_tensors(tmp_path / "m.bin"):
        torch.testing.assert_close(tensor, rounded[name].float(), rtol=1e-6, atol=1e-7)
    opened = open_model(tmp_path / "m.bin", backend="chunked")
    assert (opened.format, opened.model.config) == ("rwkv.cpp", rwkv6.config)
    for name, tensor in rwkv6.state_dict().items():
        found = opened.model.state_dict()[name]
        assert (found - tensor).abs().max() <= error * tensor.abs().max(), name
    if kind == 0:
        same(rwkv6, opened.model)


@pytest.mark.parametrize(("kind", "name"), [(0, "float32"), (1, "float16"), (7, "Q5_0"), (8, "Q5_1"), (9, "Q8_0")])
def test_what_the_file_holds_is_told_apart_from_what_is_in_memory(rwkv6, tmp_path, kind, name):
    rwkv_cpp(rwkv6, tmp_path / "pth", tmp_path / "m.bin", kind)
    opened = open_model(tmp_path / "m.bin", backend="chunked")
    assert name in opened.stored_dtypes
    assert set(opened.stored_dtypes) <= {name, "float32"}, "vectors stay as they are"
    assert sum(opened.stored_dtypes.values()) == len(dict(read_tensors(tmp_path / "m.bin")))
    assert {parameter.dtype for parameter in opened.model.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (8, "vocabulary 12, the tensors say 11"),
        (12, "width 33, the tensors say 32"),
        (16, "layers 3, the tensors say 2"),
    ],
)
def test_a_header_that_contradicts_the_tensors_is_named_with_both_numbers(rwkv6, tmp_path, place, message):
    path = tmp_path / "m.bin"
    rwkv_cpp(rwkv6, tmp_path / "pth", path, 0)
    content = bytearray(path.read_bytes())
    struct.pack_into("<i", content, place, struct.unpack_from("<i", content, place)[0] + 1)
    path.write_bytes(content)
    with pytest.raises(EverlongError, match=f"{path}: the header says {message}"):
        open_model(path, backend="chunked")


class Trap:
    """Unpickled, it would leave a mark."""

    mark: Path

    def __reduce__(self):
        return (Path.touch, (self.mark,))


def test_no_code_in_a_pth_is_unpickled(tmp_path):
    Trap.mark = tmp_path / "mark"
    torch.save({"emb.weight": Trap()}, tmp_path / "m.pth")
    with pytest.raises(EverlongError, match="never unpickles code"):
        open_model(tmp_path / "m.pth", backend="chunked")
    assert not Trap.mark.exists()


def test_a_padded_vocabulary_goes_in_with_all_its_rows(tmp_path):
    model = create("rwkv6", vocab_size=11, pad_vocab_size_multiple=8, d_model=32, n_layer=1, headdim=16)
    save(model, tmp_path / "a", format="rwkv")
    opened = open_model(tmp_path / "a", backend="chunked").model
    assert opened.config.vocab_size == 16
    tokens = torch.arange(11)[None]
    assert torch.equal(opened(tokens).logits, open_model(tmp_path / "a", backend="chunked").model(tokens).logits)
    assert torch.equal(opened.backbone.embedding.weight, model.backbone.embedding.weight)


def test_a_damaged_or_unknown_bin_is_one_line(rwkv6, tmp_path):
    path = tmp_path / "m.bin"
    rwkv_cpp(rwkv6, tmp_path / "pth", path, 8)
    content = path.read_bytes()
    for cut in (5, 23, 30, 40, 60, 3000, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        with pytest.raises(EverlongError) as error:
            open_model(path, backend="chunked")
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)
    path.write_bytes(content[:4] + struct.pack("<i", 102) + content[8:])
    with pytest.raises(EverlongError, match=r"has version 102 of rwkv.cpp's format; known: 100, 101"):
        open_model(path, backend="chunked")
    path.write_bytes(content[:4] + struct.pack("<i", 100) + content[8:])
    with pytest.raises(
        EverlongError, match="is Q5_1 of version 100; known: FP32, FP16, Q5_0, Q5_1, Q8_0 of version 101"
    ):
        open_model(path, backend="chunked")
    path.write_bytes(content[:24] + struct.pack("<3i", 2, 10, 3) + content[36:])
    with pytest.raises(EverlongError, match=r"emb.weight is Q4_1 of version 101; known"):
        open_model(path, backend="chunked")
