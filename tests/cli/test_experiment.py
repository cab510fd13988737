"""All arms from several bases, from the command line: it runs, can be killed, and says what holds over the bases."""

import json
from dataclasses import replace

import pytest

import everlong
from everlong.cli.main import main
from everlong.errors import EverlongError, RunInterrupted
from everlong.loading import save
from everlong.records.files import load_record
from everlong.workflows import experiment as module
from everlong.workflows.config import RepairConfig, RuntimeConfig, TrainConfig
from tests.cli.conftest import QUICK, tiny_model

STEPS = ["--steps", "2", "--batch-size", "4", "--reset-probability", "0.1"]
ARMS = ["--methods", "state_passing", "random_noise,scale=0.3"]
LABELS = ["before", "zero", "state_passing", "random_noise,scale=0.3"]


@pytest.fixture
def asked(text, tmp_path):
    """The flags that all of them share, the text parted."""
    held_out = [str(text / f"{index:02d}.txt") for index in range(8)]
    output = ["--output", str(tmp_path / "run")]
    return ["--data", str(text), "--held-out", *held_out, *output, *QUICK, *STEPS, *ARMS]


@pytest.fixture
def bases(tmp_path):
    folders = [tmp_path / f"model-{seed}" for seed in range(2)]
    for seed, folder in enumerate(folders):
        save(tiny_model(seed), folder, context=16, tokenizer="bytes")
    return [str(folder) for folder in folders]


def test_bases_and_seeds_come_out_as_one_table_in_one_run_folder(asked, bases, tmp_path, capsys):
    assert main(["repair", "--bases", *bases, "--seeds", "2", *asked]) == 0
    folder = tmp_path / "run"
    printed = capsys.readouterr().out
    assert printed.strip().splitlines()[-1] == str(folder / "report.html")
    assert "Random noise, scale=0.3" in printed
    record = load_record(folder / "records" / "experiment.json")
    assert (record.bases, record.seeds) == (tuple(bases), (0, 1))
    assert [arm.label for arm in record.arms] == LABELS
    assert record.arms[0].excess.shape[:2] == (2, 2)
    assert record.runs == tuple(f"repairs/base-{base}-seed-{seed}" for base in (0, 1) for seed in (0, 1))
    for run in record.runs:
        assert (folder / run / "report.html").is_file()
        training = load_record(folder / run / "records" / "training-random_noise,scale=0.3.json")
        assert training.settings["intervention"]["scale"] == 0.3
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("records/*")}
    assert main(["repair", "--resume", str(folder)]) == 0
    assert before == {path: path.stat().st_mtime_ns for path in folder.rglob("records/*")}
    with pytest.raises(EverlongError, match=r"call everlong\.experiment"):
        everlong.repair(RepairConfig(runtime=RuntimeConfig(resume=str(folder))))


def test_an_interrupted_experiment_names_itself_and_goes_on_to_the_same_table(asked, bases, tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    flags = [str(whole) if flag == str(tmp_path / "run") else flag for flag in asked]
    assert main(["repair", "--bases", *bases, *flags]) == 0
    done = []

    def interrupted(config, progress):
        if len(done) == 1:
            raise RunInterrupted("the run inside")
        done.append(config)
        return repair(config, progress)

    repair = module.repair
    monkeypatch.setattr(module, "repair", interrupted)
    assert main(["repair", "--bases", *bases, *asked]) == 130
    monkeypatch.setattr(module, "repair", repair)
    (tmp_path / "run" / "repairs" / "base-1-seed-0").mkdir()  # killed before it had settings
    assert main(["repair", "--resume", str(tmp_path / "run")]) == 0
    ours, theirs = (load_record(run / "records" / "experiment.json") for run in (tmp_path / "run", whole))
    for one, other in zip(ours.arms, theirs.arms, strict=True):
        assert (one.excess == other.excess).all()


def test_a_number_of_bases_is_trained_first_by_the_recipe_of_train(asked, tmp_path, monkeypatch):
    default = TrainConfig()
    recipe = replace(
        default,
        model=replace(default.model, d_model=16, n_layer=1, d_state=8, headdim=8),
        training=replace(default.training, steps=2, batch_size=2),
    )
    monkeypatch.setattr(module, "TrainConfig", lambda **fields: replace(recipe, **fields))
    assert main(["repair", "--bases", "2", "--context", "16", *asked]) == 0
    folder = tmp_path / "run"
    record = load_record(folder / "records" / "experiment.json")
    assert record.bases == ("bases/base-0/models/scratch", "bases/base-1/models/scratch")
    configs = [json.loads((folder / "bases" / f"base-{n}" / "config.json").read_text())["config"] for n in (0, 1)]
    assert [config["runtime"]["seed"] for config in configs] == [0, 1]
    assert {config["context"] for config in configs} == {16}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["mine", "--bases", "2"], "MODEL mine beside --bases 2"),
        (["--bases", "0"], "--bases 0 leaves nothing to repair"),
        (["--seeds", "0"], "--seeds 0 is too small"),
        (["--bases", "2", "--data", "text"], "need --held-out beside --data"),
        (["--bases", "2", "--methods", "longer_context,factor=3"], "--batch-size 64 must be a multiple of 3"),
        (["--bases", "2", "--methods", "random_noise,size=3"], "'size=3' in --methods random_noise,size=3"),
        (["--bases", "nowhere/at/all"], "no model at 'nowhere/at/all'"),
    ],
)
def test_what_cannot_be_had_is_refused_before_any_work(flags, message, tmp_path, capsys):
    assert main(["repair", *flags, "--output", str(tmp_path / "run")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_repair_itself_is_of_one_model():
    with pytest.raises(EverlongError, match=r"call everlong\.experiment"):
        everlong.repair(RepairConfig(seeds=2))


def test_bad_input_found_in_a_repair_takes_no_trained_base_away(asked, tmp_path, monkeypatch):
    folder = tmp_path / "run"

    def trained(config, progress):
        model = tiny_model()
        path = folder / "bases" / "base-0" / "models" / "scratch"
        save(model, path, context=16, tokenizer="bytes")

    monkeypatch.setattr(module, "train", trained)
    flags = ["tbtt" if flag == "random_noise,scale=0.3" else flag for flag in asked]
    flags[flags.index("--batch-size") + 1] = "64"  # more rows than documents, found when the text is read
    assert main(["repair", "--bases", "1", *flags]) == 2
    assert (folder / "bases" / "base-0" / "models" / "scratch" / "model.safetensors").is_file()
