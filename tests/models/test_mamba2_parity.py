"""Mamba-2 agrees with transformers 5.24 on random tiny models: logits, conversion both ways, carried states, steps."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Mamba2Config, Mamba2ForCausalLM

from everlong.loading import open_model, save
from everlong.models.architectures import create
from everlong.models.language_model import LanguageModel

CLOSE: dict[str, Any] = {"rtol": 0.0, "atol": 1e-5}
VARIANTS = [(1, True), (1, False), (2, True), (2, False)]
variants = pytest.mark.parametrize(("groups", "tied"), VARIANTS, ids=["1-tied", "1-untied", "2-tied", "2-untied"])


def theirs(groups: int, tied: bool) -> Mamba2ForCausalLM:
    """A random model whose states matter: slow decays and large steps, logits of order one."""
    torch.manual_seed(groups + 10 * tied)
    config = Mamba2Config(
        num_heads=8,
        head_dim=8,
        hidden_size=32,
        state_size=16,
        n_groups=groups,
        num_hidden_layers=2,
        vocab_size=40,
        tie_word_embeddings=tied,
        chunk_size=16,
    )
    model = Mamba2ForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                parameter.copy_(torch.linspace(0.02, 1.0, 8).log())
            elif name.endswith("dt_bias"):
                parameter.copy_(torch.linspace(-3.0, 0.0, 8))
            else:
                parameter += 0.1 * torch.randn_like(parameter)
    return model


def pair(groups: int, tied: bool, folder: Path) -> tuple[Mamba2ForCausalLM, LanguageModel]:
    """Their model, and ours opened from the folder that theirs was saved to."""
    reference = theirs(groups, tied)
    reference.save_pretrained(folder)
    checkpoint = open_model(folder, backend="chunked")
    assert checkpoint.format == "transformers"
    assert checkpoint.model.config.tie_embeddings is tied
    return reference, checkpoint.model


def some_tokens(length: int) -> Tensor:
    return torch.randint(40, (2, length), generator=torch.Generator().manual_seed(length))


@variants
@pytest.mark.parametrize("length", [1, 3, 16, 37, 130])
def test_logits_agree(groups, tied, length, tmp_path):
    reference, model = pair(groups, tied, tmp_path / "theirs")
    tokens = some_tokens(length)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).logits, reference(tokens).logits, **CLOSE)


@variants
def test_our_folders_open_in_transformers(groups, tied, tmp_path):
    torch.manual_seed(3)
    model = create(
        "mamba2",
        vocab_size=37,
        d_model=32,
        n_layer=2,
        headdim=8,
        d_state=16,
        ngroups=groups,
        tie_embeddings=tied,
        backend="chunked",
        A_init_range=(0.02, 1.0),
        dt_min=0.05,
        dt_max=0.7,
    )
    save(model, tmp_path / "ours", format="transformers", context=64)
    loaded: Any = Mamba2ForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    reference, info = loaded
    assert not any(info.values()), info
    assert reference.config.vocab_size == 48  # 37 rows padded to a multiple of 16
    tokens = some_tokens(37) % 37
    with torch.no_grad():
        torch.testing.assert_close(reference.eval()(tokens).logits, model(tokens).logits, **CLOSE)
    again = open_model(tmp_path / "ours", backend="chunked")
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor), name


@variants
def test_there_and_back_keeps_every_bit_and_key(groups, tied, tmp_path):
    reference = theirs(groups, tied)
    reference.save_pretrained(tmp_path / "theirs")
    save(open_model(tmp_path / "theirs", backend="chunked"), tmp_path / "back")
    assert (tmp_path / "back/config.json").read_text().strip() == (tmp_path / "theirs/config.json").read_text().strip()
    again = Mamba2ForCausalLM.from_pretrained(tmp_path / "back").state_dict()
    for name, tensor in reference.state_dict().items():
        assert torch.equal(again[name], tensor), name


@variants
def test_their_continuation_through_the_cache_is_our_carried_state(groups, tied, tmp_path):
    reference, model = pair(groups, tied, tmp_path / "theirs")
    tokens = some_tokens(49)
    whole = model(tokens).logits
    cache, state = None, None
    for piece, wanted in zip(tokens.split([5, 17, 2, 25], dim=1), whole.split([5, 17, 2, 25], dim=1), strict=True):
        with torch.no_grad():
            their = reference(piece, cache=cache, use_cache=True)
            our = model(piece, state)
        cache, state = their.cache, our.state
        torch.testing.assert_close(their.logits, our.logits, **CLOSE)
        torch.testing.assert_close(our.logits, wanted, **CLOSE)
        for index, layer in enumerate(cache.layers):
            ours = state.layer(index)
            torch.testing.assert_close(ours["recurrent"], layer.recurrent_states[0].transpose(-1, -2), **CLOSE)
            torch.testing.assert_close(ours["convolution"], layer.conv_states[0][..., -3:].transpose(-1, -2), **CLOSE)
    assert not torch.allclose(whole[:, 24:], model(tokens[:, 24:]).logits, atol=1e-2), "the state matters"


@variants
def test_single_steps_agree(groups, tied, tmp_path):
    reference, model = pair(groups, tied, tmp_path / "theirs")
    tokens = some_tokens(21)
    with torch.no_grad():
        their, our = reference(tokens[:, :9], use_cache=True), model(tokens[:, :9])
        for token in tokens[:, 9:].split(1, dim=1):
            their, our = reference(token, cache=their.cache, use_cache=True), model(token, our.state)
            torch.testing.assert_close(our.logits, their.logits, **CLOSE)
