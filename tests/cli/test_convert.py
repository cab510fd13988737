"""`everlong convert`: a model in another format with a proof, or nothing at all."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from everlong.checkpoints.formats import FORMATS, is_writable
from everlong.checkpoints.state_spaces import StateSpacesFormat
from everlong.checkpoints.transformers import TransformersFormat
from everlong.cli.main import main
from everlong.errors import EverlongError
from everlong.loading import open_model, save
from everlong.workflows.config import ConvertConfig
from everlong.workflows.convert import convert
from tests.cli.conftest import tiny_model
from tests.models import tiny

FITTING: dict[str, dict[str, Any]] = {
    "gla": {"gate_low_rank_dim": 16, "gate_logit_normalizer": 16.0},
    "rwkv6": {"expand_v": 1.0},
}
"""Sizes of the tiny models that every format of their architecture can hold."""
OURS = ("--transformers", "False")  # where transformers' own opinion is not what is tested


@pytest.fixture
def run(capsys, monkeypatch, tmp_path):
    """Runs the verb; gives the exit code and what was printed. Nothing half-made may lie about afterwards."""
    monkeypatch.setenv("COLUMNS", "160")

    def run(*arguments: str | Path) -> tuple[int, str]:
        code = main(["convert", *map(str, arguments), "--backend", "chunked"])
        printed = capsys.readouterr()
        assert not [path for path in tmp_path.rglob("*") if "unproven" in path.name or "partial" in path.name]
        return code, printed.out + printed.err

    return run


def with_dtypes(model: Path, folder: Path, dtype_of) -> Path:
    """A copy whose tensors have the dtype that ``dtype_of`` gives for a name."""
    shutil.copytree(model, folder)
    tensors = load_file(folder / "model.safetensors")
    save_file({name: tensor.to(dtype_of(name)) for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def holds(name: str, model, folder: Path) -> bool:
    """Whether a format can hold a model, which then lies in the folder."""
    try:
        save(model, folder, format=name, context=16, tokenizer="bytes")
    except EverlongError:
        return False
    return True


@pytest.mark.parametrize("here", [name for name in FORMATS if is_writable(name)])
def test_a_format_to_any_other_and_back_is_the_same_model(run, tmp_path, here):
    proven = 0
    for architecture in tiny.names():
        model = tiny.tiny_model(architecture, dtype=torch.float32, **FITTING.get(architecture, {}))
        targets = [name for name in FORMATS if holds(name, model, tmp_path / name / architecture)]
        for there in targets if here in targets else ():
            source = tmp_path / here / architecture
            out, back = (tmp_path / which / there / architecture for which in ("out", "back"))
            code, printed = run(source, out, "--to", there, *OURS)
            assert code == 0, printed
            assert f"proven.\n{out}\n" in printed
            assert run(out, back, "--to", here, *OURS)[0] == 0
            wanted, converted, again = (open_model(folder) for folder in (source, out, back))
            assert (converted.format, converted.context, converted.tokenizer) == (there, 16, "bytes")
            assert (again.format, again.context, again.tokenizer) == (here, 16, "bytes")
            for name, tensor in wanted.model.state_dict().items():
                assert torch.equal(tensor, converted.model.state_dict()[name])
                assert torch.equal(tensor, again.model.state_dict()[name])
            proven += here != there
    assert proven, f"no tiny model fits {here} and another format"


def test_transformers_itself_is_asked_where_the_format_is_its(run, model, tmp_path):
    code, printed = run(model, tmp_path / "out", "--to", "transformers")
    assert code == 0
    assert f"transformers {transformers.__version__}" in printed
    assert "1e-05" in printed
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    tokens = torch.arange(20)[None]
    with torch.no_grad():
        ours = open_model(model).model(tokens).logits
        torch.testing.assert_close(theirs(tokens).logits, ours, atol=1e-5, rtol=1e-5)
    assert "transformers 5" not in run(model, tmp_path / "other", "--to", "transformers", *OURS)[1]


def test_a_library_that_reads_another_model_fails_the_proof(run, model, tmp_path, monkeypatch):
    whole = transformers.Mamba2ForCausalLM.forward

    def forward(self, *arguments, **settings) -> Any:
        output: Any = whole(self, *arguments, **settings)
        output.logits = output.logits * 1.001
        return output

    monkeypatch.setattr(transformers.Mamba2ForCausalLM, "forward", forward)
    code, printed = run(model, tmp_path / "out", "--to", "transformers")
    assert (code, (tmp_path / "out").exists()) == (1, False)
    assert "logits by transformers: 0.001" in printed


def test_a_library_that_cannot_read_it_fails_the_proof(run, model, tmp_path, monkeypatch):
    def fail(*arguments, **settings):
        raise ValueError("no such thing\nas this")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fail)
    code, printed = run(model, tmp_path / "out", "--to", "transformers")
    assert (code, (tmp_path / "out").exists()) == (1, False)
    assert "it cannot read OUT: no such thing." in printed


def test_a_tensor_that_comes_back_changed_leaves_nothing_and_is_named(run, model, tmp_path, monkeypatch):
    whole = TransformersFormat.tensors

    def tensors(self, model):
        found = whole(self, model)
        return {**found, "backbone.layers.1.mixer.D": found["backbone.layers.1.mixer.D"] * (1 + 1e-6)}

    monkeypatch.setattr(TransformersFormat, "tensors", tensors)
    code, printed = run(model, tmp_path / "out", "--to", "transformers")
    assert (code, (tmp_path / "out").exists()) == (1, False)
    assert "Not the same model" in printed
    assert "backbone.layers.1.mixer.D differs in 4 of 4 numbers, by 9.5e-07" in printed


def test_a_source_that_is_read_wrongly_is_found_on_the_way_back(run, tmp_path, monkeypatch):
    save(tiny_model(), tmp_path / "in", format="transformers")
    whole = TransformersFormat.tensors
    monkeypatch.setattr(
        TransformersFormat,
        "tensors",
        lambda self, model: {name: tensor.abs() for name, tensor in whole(self, model).items()},
    )
    code, printed = run(tmp_path / "in", tmp_path / "out", "--to", "everlong")
    assert (code, (tmp_path / "out").exists()) == (1, False)
    assert "tensors on the way back to IN: backbone.embeddings.weight differs" in printed


def test_a_lost_setting_fails_the_proof(run, model, tmp_path, monkeypatch):
    monkeypatch.setattr(TransformersFormat, "sidecar", lambda self, context, tokenizer: {})
    code, printed = run(model, tmp_path / "out", "--to", "transformers", *OURS)
    assert (code, (tmp_path / "out").exists()) == (1, False)
    assert "training context 16 is now None" in printed


@pytest.mark.parametrize("target", ["transformers", "state-spaces"])
def test_the_dtype_of_the_file_is_kept(run, model, tmp_path, target):
    half = with_dtypes(model, tmp_path / "half", lambda name: torch.bfloat16)
    assert run(half, tmp_path / "out", "--to", target)[0] == 0
    assert set(open_model(tmp_path / "out").stored_dtypes) == {"bfloat16"}
    assert run(half, tmp_path / "wide", "--to", target, "--dtype", "float32", *OURS)[0] == 0
    assert set(open_model(tmp_path / "wide").stored_dtypes) == {"float32"}


def test_of_several_dtypes_the_widest_is_written_and_said(run, model, tmp_path):
    mixed = with_dtypes(model, tmp_path / "mixed", lambda name: torch.float32 if "A_log" in name else torch.bfloat16)
    code, printed = run(mixed, tmp_path / "out", "--to", "everlong")
    assert code == 0
    assert "float32 x 20 in OUT" in printed
    assert "(18 of them as float32)" in printed


def test_the_small_files_of_the_folder_go_along(run, model, tmp_path):
    shutil.copytree(model, tmp_path / "in")
    (tmp_path / "in" / "LICENSE").write_text("free")
    (tmp_path / "in" / "generation_config.json").write_text("{}")
    code, printed = run(tmp_path / "in", tmp_path / "out", "--to", "state-spaces")
    assert code == 0
    assert "LICENSE, generation_config.json" in printed
    assert (tmp_path / "out" / "LICENSE").read_text() == "free"


def test_a_tied_head_that_is_stored_once_is_no_difference(run, tmp_path):
    save(tiny_model(), tmp_path / "in", format="state-spaces")
    path = tmp_path / "in" / "pytorch_model.bin"
    tensors = torch.load(path, weights_only=True)
    del tensors["lm_head.weight"]
    torch.save(tensors, path)
    assert run(tmp_path / "in", tmp_path / "out", "--to", "everlong")[0] == 0


def test_an_existing_target_is_refused_before_any_work(run, tmp_path):
    (tmp_path / "out").mkdir()
    code, line = run("nowhere/at/all", tmp_path / "out", "--to", "no-format")
    assert code == 2
    assert f"{tmp_path / 'out'} exists already" in line
    (tmp_path / "link").symlink_to(tmp_path / "absent")
    assert "exists already" in run("nowhere/at/all", tmp_path / "link", "--to", "everlong")[1]


def test_an_unknown_format_lists_the_known_ones_before_any_work(run, tmp_path):
    code, line = run("nowhere/at/all", tmp_path / "out", "--to", "onnx")
    assert code == 2
    assert f"unknown checkpoint format 'onnx'; known: {', '.join(FORMATS)}" in line


def test_a_format_that_is_read_only_is_refused_before_any_work(run, tmp_path, monkeypatch):
    monkeypatch.setattr(StateSpacesFormat, "writable", False, raising=False)
    code, line = run("nowhere/at/all", tmp_path / "out", "--to", "state-spaces")
    assert code == 2
    assert "the state-spaces format is read only; those that can be written: everlong, " in line


def test_a_source_in_a_read_only_format_is_proven_without_the_way_back(run, tmp_path, monkeypatch):
    save(tiny_model(), tmp_path / "in", format="state-spaces")
    monkeypatch.setattr(StateSpacesFormat, "writable", False, raising=False)
    code, printed = run(tmp_path / "in", tmp_path / "out", "--to", "everlong")
    assert code == 0
    assert "not compared: there is no way back to the state-spaces format" in printed


def test_the_real_quantised_rwkv_is_widened_and_can_be_converted(run, shared, tmp_path):
    code, printed = run(shared / "weights/tiny-rwkv/tiny-rwkv-6v0-3m-Q5_1.bin", tmp_path / "out", "--to", "rwkv")
    assert code == 0
    assert "not compared: there is no way back to the rwkv.cpp format" in printed
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["model.pth"], "its neighbours are not its own"
    assert run(tmp_path / "out", tmp_path / "fla", "--to", "fla")[0] == 0


def test_what_the_format_cannot_hold_is_refused_and_leaves_nothing(run, tmp_path):
    from everlong.models.architectures import create

    save(create("mamba2", vocab_size=16, d_model=8, n_layer=1, headdim=4, norm_epsilon=1e-6), tmp_path / "in")
    code, line = run(tmp_path / "in", tmp_path / "out", "--to", "state-spaces")
    assert (code, (tmp_path / "out").exists()) == (2, False)
    assert "norm_epsilon is 1e-06" in line


def test_a_missing_source_is_named(run, tmp_path):
    code, line = run("nowhere/at/all", tmp_path / "out", "--to", "everlong")
    assert code == 2
    assert "no model at 'nowhere/at/all'" in line


def test_from_python_it_gives_the_record(model, tmp_path):
    record = convert(ConvertConfig(source=str(model), target=str(tmp_path / "out"), to="state-spaces"))
    assert record.wrong == ()
    assert (record.source_format, record.target_format, record.dtype) == ("everlong", "state-spaces", "float32")
    assert record.checks[-1].value == 0.0
