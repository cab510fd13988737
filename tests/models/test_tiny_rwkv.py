"""The real, trained RWKV-6 beside the repository gives the logits that its authors expect, however it is split."""

from pathlib import Path

import pytest
import torch

from everlong.checkpoints._checkpoint import Checkpoint
from everlong.errors import EverlongError
from everlong.loading import open_model, save
from everlong.models.config import RWKV6Config

FILE = "tiny-rwkv-6v0-3m-Q5_1.bin"
PROMPT = torch.tensor([list(b'"in')])


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    if not (shared / "weights/tiny-rwkv" / FILE).is_file():
        pytest.skip(f"no {FILE} in {shared}/weights/tiny-rwkv")
    return shared / "weights/tiny-rwkv"


@pytest.fixture(scope="module", params=["reference", "chunked", "auto"])
def opened(folder: Path, request: pytest.FixtureRequest) -> Checkpoint:
    return open_model(folder / FILE, backend=request.param)


def test_the_sizes_are_read_from_the_file(opened):
    assert opened.model.config == RWKV6Config(vocab_size=256, d_model=128, n_layer=12, headdim=8, intermediate_size=448)
    assert (opened.format, opened.name, opened.context) == ("rwkv.cpp", "tiny-rwkv-6v0-3m-Q5_1", None)


def test_the_logits_are_those_that_its_authors_expect(opened, folder):
    expected = torch.frombuffer(bytearray((folder / "expected-logits-6v0-3m.bin").read_bytes()), dtype=torch.float32)
    with torch.no_grad():
        logits = opened.model(PROMPT).logits[0, -1]
    correlation = torch.corrcoef(torch.stack([logits, expected]).double())[0, 1]
    assert correlation > 0.99999  # seen: 0.9999961
    assert (logits - expected).abs().max() < 0.1  # seen: 0.076, the quantisation of rwkv.cpp's activations


def test_any_split_of_a_text_gives_the_whole(opened):
    text = "".join(f"{letter}\0" for letter in "Once upon a time there was a little girl who liked to read. " * 2)
    tokens = torch.tensor([list(text.encode())])
    with torch.no_grad():
        whole = opened.model(tokens)
        for split in (1, 2, 63, 64, 65, 200):
            first = opened.model(tokens[:, :split])
            second = opened.model(tokens[:, split:], first.state)
            logits = torch.cat([first.logits, second.logits], dim=1)
            torch.testing.assert_close(logits, whole.logits, rtol=1e-4, atol=1e-3)
            for found, wanted in zip(second.state.leaves, whole.state.leaves, strict=True):
                torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)
    loss = torch.nn.functional.cross_entropy(whole.logits[0, :-1], tokens[0, 1:])
    assert loss < 1.0, "it knows this kind of text (two bytes a character)"


@pytest.mark.parametrize("format_", ["rwkv", "fla", "everlong"])
def test_it_goes_into_the_other_formats_and_back(folder, format_, tmp_path):
    model = open_model(folder / FILE, backend="chunked").model
    save(model, tmp_path / "m", format=format_)
    again = open_model(tmp_path / "m", backend="chunked").model
    assert again.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name


def test_saving_it_without_a_format_takes_everlongs_own_and_leaves_its_neighbours(folder, tmp_path):
    checkpoint = open_model(folder / FILE, backend="chunked")
    save(checkpoint, tmp_path / "m")
    assert {file.name for file in (tmp_path / "m").iterdir()} == {"config.json", "model.safetensors"}
    assert open_model(tmp_path / "m", backend="chunked").format == "everlong"


def test_the_folder_of_two_models_asks_for_one_and_rwkv7_is_named(folder):
    with pytest.raises(EverlongError, match=r"holds several models: tiny-rwkv-6v0-3m-Q5_1.bin, tiny-rwkv-7v0-.*; give"):
        open_model(folder)
    with pytest.raises(EverlongError, match="is no RWKV-6 model: it looks like RWKV-7"):
        open_model(folder / "tiny-rwkv-7v0-834K-FP32.bin")
