"""Every way of asking for a model."""

from dataclasses import replace

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import LocalEntryNotFoundError

import everlong.loading
from everlong.data import _hub
from everlong.loading import load, open_model
from tests.flushed import Disk
from tests.loading.folders import every_format, refusal, rewrite, tensors_of


@every_format
def test_a_folder_and_every_file_in_it_give_the_model(folder, name, monkeypatch):
    path = folder(name)
    wanted = load(path, backend="chunked").state_dict()
    monkeypatch.chdir(path.parent)
    for request in (str(path), "model", path / "config.json", "model/config.json", next(path.glob("*model.*"))):
        opened = open_model(request, backend="chunked")
        assert (opened.format, opened.name, opened.context) == (name, "model", None)
        assert not opened.model.training
        assert all(torch.equal(tensor, wanted[key]) for key, tensor in opened.model.state_dict().items())
    monkeypatch.chdir(path)
    assert open_model(".", backend="chunked").name == "model"


def test_the_weights_file_asked_for_is_the_one_read(folder):
    path = folder("everlong")
    doubled = {name: 2 * tensor for name, tensor in tensors_of(path)[1].items()}
    torch.save(doubled, path / "pytorch_model.bin")
    plain, other = load(path), load(path / "pytorch_model.bin")
    assert torch.equal(other.backbone.norm_f.weight, 2 * plain.backbone.norm_f.weight)


def test_an_existing_path_comes_before_the_hub(folder, monkeypatch):
    path = folder("everlong")
    monkeypatch.chdir(path.parent.parent)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *a, **k: pytest.fail("asked the hub"))
    assert open_model(f"{path.parent.name}/model").name == "model"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_the_dtype_is_what_was_asked_for_whatever_the_file_holds(folder, dtype):
    path = folder("everlong")
    rewrite(path, lambda tensors: tensors.update({k: v.bfloat16() for k, v in tensors.items()}))
    assert open_model(path).model.dtype is torch.float32
    for request in (dtype, getattr(torch, dtype)):
        model = load(path, dtype=request)
        assert {parameter.dtype for parameter in model.parameters()} == {getattr(torch, dtype)}


def test_loading_leaves_the_random_state_and_the_file_alone(folder):
    path = folder("everlong")
    before, content = torch.get_rng_state(), tensors_of(path)[0].read_bytes()
    model = load(path)
    assert torch.equal(torch.get_rng_state(), before)
    with torch.no_grad():
        model.backbone.norm_f.weight.zero_()
    assert tensors_of(path)[0].read_bytes() == content


@every_format
def test_weights_lie_in_one_order_in_memory_whatever_the_file_s(folder, name, monkeypatch):
    path = folder(name)
    wanted = {key: tensor.clone() for key, tensor in load(path).state_dict().items()}
    whole = everlong.loading.read_weights

    def turned(*arguments):
        weights = whole(*arguments)
        return replace(
            weights, tensors={k: t.t().contiguous().t() if t.ndim == 2 else t for k, t in weights.tensors.items()}
        )

    monkeypatch.setattr(everlong.loading, "read_weights", turned)
    for key, tensor in load(path).state_dict().items():
        assert tensor.is_contiguous()
        assert torch.equal(tensor, wanted[key])


@every_format
def test_a_model_lives_on_when_its_file_changes(folder, name):
    path = folder(name)
    model, (file, wanted) = load(path), tensors_of(path)
    wanted = {key: tensor.clone() for key, tensor in wanted.items()}
    with file.open("r+b") as opened:
        opened.write(bytes(file.stat().st_size))
    assert torch.equal(model.get_parameter("backbone.layers.2.norm.weight"), wanted["backbone.layers.2.norm.weight"])
    assert torch.equal(model.backbone.norm_f.weight, wanted["backbone.norm_f.weight"])


def test_a_hub_id_is_fetched_and_keeps_its_name(folder, monkeypatch):
    path, asked = folder("state-spaces"), []

    def snapshot_download(repo, *, allow_patterns):
        asked.append((repo, allow_patterns))
        return str(path)

    monkeypatch.setattr(_hub, "is_reachable", lambda: True)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    opened = open_model("state-spaces/mamba2-370m", backend="chunked")
    assert (opened.name, opened.context) == ("state-spaces/mamba2-370m", 2048)
    assert [repo for repo, _ in asked] == ["state-spaces/mamba2-370m"] * 2
    assert not any(".bin" in pattern for pattern in asked[0][1]), "a .bin is fetched only where there is no safetensors"
    assert "pytorch_model*.bin" in asked[1][1]


@pytest.mark.parametrize(
    "failure",
    [
        OSError("We couldn't connect\nto the hub"),
        ValueError("bad"),
        LocalEntryNotFoundError("offline and not cached\n\nmore"),
        TimeoutError(),
    ],
)
def test_a_hub_failure_is_one_line(failure, monkeypatch):
    def fail(*args, **kwargs):
        raise failure

    monkeypatch.setattr(_hub, "is_reachable", lambda: True)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    message = refusal("nobody/nothing")
    assert "'nobody/nothing' is no folder here, and the hub did not give it" in message
    assert type(failure).__name__ in message


@every_format
def test_a_model_is_on_the_disk_before_its_folder_has_its_name(folder, name, monkeypatch):
    disk = Disk(monkeypatch)
    disk.assert_lasting(folder(name))
