"""`everlong doctor`: one screen, where each number was read, and exit code 1 for a model that is broken."""

import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from everlong.cli.main import main
from everlong.loading import save
from everlong.models.architectures import create
from everlong.models.language_model import LanguageModel, LanguageModelOutput
from everlong.ops.backends import GATED_LINEAR_ATTENTION
from everlong.records.files import load_record
from everlong.state import RecurrentState
from tests.cli.conftest import tiny_model
from tests.models import tiny


@pytest.fixture
def doctor(capsys, monkeypatch, tmp_path):
    """Runs the verb in an empty folder; gives the exit code and what was printed, in single spaces."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setenv("COLUMNS", "140")

    def run(*arguments: str, backend: str = "chunked") -> tuple[int, str]:
        code = main(["doctor", *arguments, "--backend", backend])
        printed = capsys.readouterr()
        return code, re.sub(r"[ ]+", " ", printed.err + printed.out)

    return run


def lose_the_first_convolution(monkeypatch):
    whole = LanguageModel.forward

    def forward(self, tokens, state=None, *, resets=None):
        output = whole(self, tokens, state, resets=resets)
        leaves = list(output.state.leaves)
        first = next(i for i, leaf in enumerate(output.state.spec.leaves) if leaf.role == "convolution")
        leaves[first] = torch.zeros_like(leaves[first])
        return LanguageModelOutput(output.logits, RecurrentState(output.state.spec, tuple(leaves)))

    monkeypatch.setattr(LanguageModel, "forward", forward)


def test_a_sound_model_is_one_screen_and_exit_code_0(doctor, model, tmp_path):
    code, screen = doctor(str(model))
    assert code == 0
    for line in (
        "tiny: mamba2, 8,424 parameters, everlong format",
        "dtype in the file float32 x 20 model.safetensors",
        "dtype in memory float32 --dtype",
        "d_model 16 model.d_model; embedding.weight",
        "d_state 8 model.d_state; layers.0.mixer.conv1d.weight",
        "head tied model.tie_embeddings",
        "nheads 4 follows from the others",
        "training context 16 config.json",
        "tokenizer bytes, 256 ids config.json",
        "chunked yes chosen: asked for by --backend",
        "recurrent recurrent 4 x 8 x 8 float32 2 2,048",
        "convolution convolution 3 x 48 float32 2 1,152",
        "all 3,200",
        "any split gives the whole ok",
        "packed documents equal each alone ok",
        "backend equals the reference loop ok",
        "train mode equals eval mode ok 0 eps",
        "Nothing is wrong",
    ):
        assert line in screen, screen
    assert len(screen.splitlines()) < 50
    assert list((tmp_path / "here").iterdir()) == [], "nothing is saved unless asked for"


def test_a_model_that_loses_a_part_of_its_state_is_found_with_the_position(doctor, model, monkeypatch, tmp_path):
    lose_the_first_convolution(monkeypatch)
    code, screen = doctor(str(model), "--output", str(tmp_path / "run"))
    assert code == 1
    assert "any split gives the whole WRONG" in screen
    assert "the logits first after 2 tokens" in screen
    assert "WRONG, 2 of 6 checks: any split gives the whole:" in screen, "and documents packed over a split"
    record = load_record(tmp_path / "run" / "records" / "doctor.json")
    assert {check.name: check.position for check in record.wrong}["any split gives the whole"] == 2


def test_the_record_is_saved_where_it_is_asked_for(doctor, model, tmp_path):
    code, screen = doctor(str(model), "--output", str(tmp_path / "run"), "--seed", "3")
    assert code == 0
    assert screen.rstrip().endswith(str(tmp_path / "run"))
    record = load_record(tmp_path / "run" / "records" / "doctor.json")
    assert (record.architecture, record.context, record.seed, record.backend) == ("mamba2", 16, 3, "chunked")
    assert record.wrong == ()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["verb"] == "doctor"


def test_an_output_that_exists_is_refused_before_the_model_is_opened(doctor, tmp_path):
    (tmp_path / "mine").mkdir()
    code, line = doctor("nowhere/at/all", "--output", str(tmp_path / "mine"))
    assert code == 2
    assert "--output" in line
    assert "--resume" not in line, "this verb has none"
    assert list((tmp_path / "mine").iterdir()) == []


def test_a_model_that_cannot_be_opened_leaves_no_run_folder(doctor, tmp_path):
    code, line = doctor("nowhere/at/all", "--output", str(tmp_path / "run"))
    assert (code, (tmp_path / "run").exists()) == (2, False)
    assert "no model at 'nowhere/at/all'" in line


def test_what_is_not_known_names_the_flag_that_gives_it(doctor, tmp_path):
    save(tiny_model(), tmp_path / "plain")
    code, screen = doctor(str(tmp_path / "plain"))
    assert code == 0
    assert "training context not known diagnose and repair need --context N" in screen
    assert "tokenizer not known" in screen
    assert "--tokenizer bytes|PATH|ID" in screen
    assert "training context 77 --context" in doctor(str(tmp_path / "plain"), "--context", "77")[1]


@pytest.mark.parametrize("name", ["everlong", "state-spaces", "transformers"])
def test_a_format_says_where_its_numbers_stand(doctor, tmp_path, name):
    save(tiny_model(), tmp_path / "m", format=name, context=16, tokenizer="bytes")
    code, screen = doctor(str(tmp_path / "m"))
    assert code == 0
    settings, keys = {
        "everlong": ("config.json", ("model.d_state", "model.d_model")),
        "state-spaces": ("everlong.json", ("ssm_cfg.d_state", "d_model")),
        "transformers": ("everlong.json", ("state_size", "hidden_size")),
    }[name]
    assert f"training context 16 {settings}" in screen
    assert f"d_state 8 {keys[0]}; layers.0.mixer.conv1d.weight" in screen
    assert f"d_model 16 {keys[1]}; embedding.weight" in screen


def test_a_model_in_one_file_shows_its_sizes_by_its_tensors(doctor, shared):
    code, screen = doctor(str(shared / "weights/tiny-rwkv/tiny-rwkv-6v0-3m-Q5_1.bin"))
    assert code == 0
    assert "rwkv6, 3,334,656 parameters, rwkv.cpp format" in screen
    assert "d_model 128 embedding.weight" in screen
    assert "headdim 8 layers.0.mixer.time_faaaa" in screen
    assert "proj_low_rank_dim 32 layers.0.mixer.time_maa_w1" in screen
    assert "intermediate_size 448 layers.0.mlp.key.weight" in screen
    assert "pad_vocab_size_multiple 1 the tensors' sizes, or fixed by the format" in screen
    assert "dtype in the file float32 x 210, Q5_1 x 132 tiny-rwkv" in screen
    assert "dtype in memory float32 --dtype" in screen
    assert "shift shift 128 float32 12 6,144" in screen


@pytest.mark.parametrize(
    ("architecture", "format_", "lines"),
    [
        ("gla", "fla", ("num_heads 2 num_heads; layers.0.mixer.g_norm.weight", "head untied tie_word_embeddings")),
        ("rwkv6", "fla", ("headdim 4 no key of its own: the default, or it follows; layers.0.mixer.time_faaaa",)),
        ("rwkv6", "rwkv", ("headdim 4 layers.0.mixer.time_faaaa", "dtype in the file float32 x 62 model.pth")),
        ("mamba1", "transformers", ("d_state 3 state_size; layers.0.mixer.A_log", "head tied tie_word_embeddings")),
    ],
)
def test_every_architecture_is_examined_in_its_foreign_formats(doctor, tmp_path, architecture, format_, lines):
    sizes = {"gla": {"gate_low_rank_dim": 16, "gate_logit_normalizer": 16.0}, "rwkv6": {"expand_v": 1.0}}
    model = tiny.tiny_model(architecture, dtype=torch.float32, **sizes.get(architecture, {}))
    save(model, tmp_path / "m", format=format_)
    code, screen = doctor(str(tmp_path / "m"), backend="auto")
    assert code == 0, screen
    for line in lines:
        assert line in screen, screen


def test_a_number_that_config_json_leaves_out_is_the_formats_default(doctor, tmp_path):
    save(tiny_model(), tmp_path / "m", format="state-spaces")
    assert "ngroups 1 no key of its own: the default, or it follows" in doctor(str(tmp_path / "m"))[1]


def test_the_published_context_of_a_named_model_says_so(doctor, tmp_path):
    save(tiny_model(), tmp_path / "mamba2-130m", format="state-spaces")
    screen = doctor(str(tmp_path / "mamba2-130m"))[1]
    assert "training context 2,048 the published model of that name (mamba2-130m)" in screen


def test_a_padded_vocabulary_and_an_untied_head_are_said(doctor, tmp_path):
    torch.manual_seed(0)
    model = create("mamba2", vocab_size=250, d_model=16, n_layer=1, d_state=8, headdim=8, tie_embeddings=False)
    save(model, tmp_path / "m")
    screen = doctor(str(tmp_path / "m"))[1]
    assert "vocab_size 250 " in screen
    assert "padded_vocab_size 256 " in screen
    assert "head untied " in screen


def test_a_tokenizer_with_more_ids_than_the_model_is_wrong(doctor, tmp_path):
    torch.manual_seed(0)
    model = create("mamba2", vocab_size=64, d_model=16, n_layer=1, d_state=8, headdim=8)
    save(model, tmp_path / "m", tokenizer="bytes", context=16)
    code, screen = doctor(str(tmp_path / "m"))
    assert code == 1
    assert "vocabulary holds the tokenizer's ids: 256 ids, the model knows 64" in screen


def test_each_backend_says_whether_it_serves_and_why_not(doctor, model):
    screen = doctor(str(model), "--dtype", "float64", backend="auto")[1]
    assert "cpu no the cpu kernel computes in float32, the state is torch.float64" in screen
    assert "chunked yes chosen: the fastest that serves here" in screen
    assert all(f"\n{name} " in screen for name in GATED_LINEAR_ATTENTION)


def test_the_dtype_in_the_file_is_told_apart_from_the_one_measured_in(doctor, model, tmp_path):
    shutil.copytree(model, tmp_path / "half")
    path = tmp_path / "half" / "model.safetensors"
    save_file({name: tensor.bfloat16() for name, tensor in load_file(path).items()}, path)
    screen = doctor(str(tmp_path / "half"))[1]
    assert "dtype in the file bfloat16 x 20" in screen
    assert "on cpu in float32" in screen
    code, screen = doctor(str(tmp_path / "half"), "--dtype", "bfloat16")
    assert code == 0
    assert "convolution convolution 3 x 48 bfloat16 2 576" in screen


def test_bad_flags_are_exit_code_2(doctor, model):
    assert doctor(str(model), backend="abacus")[0] == 2
    assert doctor(str(model), "--context", "1")[0] == 2
    assert doctor(str(model), "--seed", "-1")[0] == 2
