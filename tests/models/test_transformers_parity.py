"""Our models agree with transformers 5.24 on random tiny ones: logits, conversion both ways, carried states, steps."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from everlong.loading import open_model, save
from everlong.models.architectures import create
from everlong.models.language_model import LanguageModel
from everlong.state import RecurrentState

CLOSE: dict[str, Any] = {"rtol": 0.0, "atol": 1e-5}
WIDTH = 32


@dataclass(frozen=True, kw_only=True)
class Case:
    """A family of transformers: its classes, its settings, and how ours is made with the same sizes."""

    family: str
    theirs: dict[str, Any]
    architecture: str
    ours: dict[str, Any]
    padded: int
    """Rows of our embedding for 37 token ids."""
    chunks: bool
    """Whether transformers continues several tokens rightly: its Mamba-1 restarts the state at zero in silence."""
    tied: bool

    @property
    def id(self) -> str:
        return f"{self.family}{self.theirs.get('n_groups', '')}-{'tied' if self.tied else 'untied'}"


def mamba1(family: str, *, bcdt_rms: bool, tied: bool) -> Case:
    ours = {"d_state": 6, "dt_rank": 3, "bcdt_rms": bcdt_rms}
    theirs = {"state_size": 6, "time_step_rank": 3}
    return Case(family=family, theirs=theirs, architecture="mamba1", ours=ours, padded=40, chunks=False, tied=tied)


def mamba2(groups: int, *, tied: bool) -> Case:
    ours = {"headdim": 8, "d_state": 16, "ngroups": groups, "A_init_range": (0.02, 1.0)}
    theirs = {"num_heads": 8, "head_dim": 8, "state_size": 16, "n_groups": groups, "chunk_size": 16}
    return Case(family="Mamba2", theirs=theirs, architecture="mamba2", ours=ours, padded=48, chunks=True, tied=tied)


CASES = [
    case
    for tied in (True, False)
    for case in (
        mamba1("Mamba", bcdt_rms=False, tied=tied),
        mamba1("FalconMamba", bcdt_rms=True, tied=tied),
        mamba2(1, tied=tied),
        mamba2(2, tied=tied),
    )
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


def model_class(case: Case) -> Any:
    return getattr(transformers, f"{case.family}ForCausalLM")


def their_model(case: Case) -> Any:
    """A random model whose states matter: slow decays and large steps, logits of order one."""
    torch.manual_seed(1 + 10 * case.tied)
    config = getattr(transformers, f"{case.family}Config")(
        hidden_size=WIDTH, num_hidden_layers=2, vocab_size=40, tie_word_embeddings=case.tied, **case.theirs
    )
    model = model_class(case)(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                rates = torch.linspace(0.02, 1.0, parameter.shape[-1])
                parameter.copy_(rates.log().expand_as(parameter) + 0.1 * torch.randn_like(parameter))
            elif name.endswith(("dt_bias", "dt_proj.bias")):
                parameter.copy_(torch.linspace(-3.0, 0.0, parameter.shape[0]))
            else:
                parameter += 0.1 * torch.randn_like(parameter)
    return model


def pair(case: Case, folder: Path) -> tuple[Any, LanguageModel]:
    """Their model, and ours opened from the folder that theirs was saved to."""
    reference = their_model(case)
    reference.save_pretrained(folder)
    checkpoint = open_model(folder, backend="chunked")
    assert checkpoint.format == "transformers"
    assert checkpoint.model.config.architecture == case.architecture
    assert checkpoint.model.config.tie_embeddings is case.tied
    return reference, checkpoint.model


def some_tokens(length: int) -> Tensor:
    return torch.randint(40, (2, length), generator=torch.Generator().manual_seed(length))


@every_case
@pytest.mark.parametrize("length", [1, 3, 16, 37, 130])
def test_logits_agree(case, length, tmp_path):
    reference, model = pair(case, tmp_path / "theirs")
    tokens = some_tokens(length)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).logits, reference(tokens).logits, **CLOSE)


@every_case
def test_our_folders_open_in_transformers(case, tmp_path):
    torch.manual_seed(3)
    sizes: dict[str, Any] = {"vocab_size": 37, "d_model": WIDTH, "n_layer": 2, "dt_min": 0.05, "dt_max": 0.7}
    model = create(case.architecture, tie_embeddings=case.tied, backend="chunked", **sizes, **case.ours)
    save(model, tmp_path / "ours", format="transformers", context=64)
    reference, info = model_class(case).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert reference.config.vocab_size == case.padded
    tokens = some_tokens(37) % 37
    with torch.no_grad():
        torch.testing.assert_close(reference.eval()(tokens).logits, model(tokens).logits, **CLOSE)
    again = open_model(tmp_path / "ours", backend="chunked")
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], tensor), name


@every_case
def test_there_and_back_keeps_every_bit_and_key(case, tmp_path):
    reference = their_model(case)
    reference.save_pretrained(tmp_path / "theirs")
    save(open_model(tmp_path / "theirs", backend="chunked"), tmp_path / "back")
    assert (tmp_path / "back/config.json").read_text().strip() == (tmp_path / "theirs/config.json").read_text().strip()
    again = model_class(case).from_pretrained(tmp_path / "back").state_dict()
    for name, tensor in reference.state_dict().items():
        assert torch.equal(again[name], tensor), name


def assert_same_state(state: RecurrentState, cache: Any) -> None:
    """Ours and their cache, whose heads are [V, K] where a state has heads, and whose windows are one token wider."""
    for index, layer in enumerate(cache.layers):
        ours, theirs = state.layer(index), layer.recurrent_states[0]
        torch.testing.assert_close(ours["recurrent"], theirs.transpose(-1, -2) if theirs.ndim == 4 else theirs, **CLOSE)
        torch.testing.assert_close(ours["convolution"], layer.conv_states[0][..., -3:].transpose(-1, -2), **CLOSE)


@every_case
def test_a_carried_state_continues_as_one_call_of_theirs(case, tmp_path):
    """Through their own cache too, where it is right."""
    reference, model = pair(case, tmp_path / "theirs")
    tokens, sizes = some_tokens(49), [5, 17, 2, 25]
    with torch.no_grad():
        whole = reference(tokens).logits
    cache, state = None, None
    for piece, wanted in zip(tokens.split(sizes, dim=1), whole.split(sizes, dim=1), strict=True):
        with torch.no_grad():
            our = model(piece, state)
            torch.testing.assert_close(our.logits, wanted, **CLOSE)
            if case.chunks:
                their = reference(piece, cache=cache, use_cache=True)
                torch.testing.assert_close(their.logits, our.logits, **CLOSE)
                assert_same_state(our.state, their.cache)
                cache = their.cache
        state = our.state
    assert not torch.allclose(whole[:, 24:], model(tokens[:, 24:]).logits, atol=1e-2), "the state matters"


@every_case
def test_single_steps_agree(case, tmp_path):
    reference, model = pair(case, tmp_path / "theirs")
    tokens = some_tokens(21)
    with torch.no_grad():
        their, our = reference(tokens[:, :9], use_cache=True), model(tokens[:, :9])
        for token in tokens[:, 9:].split(1, dim=1):
            their, our = reference(token, cache=their.cache, use_cache=True), model(token, our.state)
            torch.testing.assert_close(our.logits, their.logits, **CLOSE)
            assert_same_state(our.state, their.cache)


def test_an_intermediate_size_stands_above_expand_as_in_falcon_mamba_7b(tmp_path):
    """Its config.json says "expand": 16 and "intermediate_size": 8192 for a hidden_size of 4096."""
    case = mamba1("FalconMamba", bcdt_rms=True, tied=False)
    reference = their_model(case)
    reference.config.expand = 16
    reference.save_pretrained(tmp_path / "theirs")
    model = open_model(tmp_path / "theirs", backend="chunked").model
    tokens = some_tokens(9)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).logits, reference(tokens).logits, **CLOSE)
