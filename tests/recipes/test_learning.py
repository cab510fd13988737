"""The recipes of tasks at the tiniest scale: all runs, the record, the figures; and gone on with."""

from dataclasses import replace

import numpy as np
import pytest

from everlong.diagnostics.config import DiagnosisConfig
from everlong.errors import EverlongError
from everlong.recipes import babilong, copying, passkey, recall
from everlong.recipes._learning import BaseConfig, failing_base, trained_base
from everlong.records.files import load_record
from everlong.tasks._babi import read_questions
from everlong.workflows.config import MachineConfig
from tests.tasks.conftest import write_babi

MACHINE = MachineConfig(backend="chunked")
FIGURES = {f"{name}.{kind}" for name in ("scores", "seeds") for kind in ("svg", "pdf", "csv")}


@pytest.fixture(scope="module")
def books(tmp_path_factory):
    folder = tmp_path_factory.mktemp("books")
    random = np.random.default_rng(0)
    for part in ("train", "test"):
        (folder / part).mkdir()
        for book in range(3):
            words = [f"The {random.choice(['cat', 'dog', 'cow'])} sat down {number}." for number in range(60)]
            (folder / part / f"{part}-{book}.txt").write_text(" ".join(words), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def tiny(books, tmp_path_factory):
    """Settings of a base that is trained and repaired once for all recipes."""
    return {
        "books": books,
        "bases": tmp_path_factory.mktemp("bases") / "base",
        "context": 64,
        "rows": 2,
        "d_model": 16,
        "n_layer": 1,
        "base_steps": 2,
        "repair_steps": 2,
        "must_fail": False,
        "diagnosis": DiagnosisConfig(max_length=256, documents=2, targets_per_bucket=16, quick=True),
        "seeds": 1,
        "learning_rates": (1e-3,),
        "examples": 2,
        "machine": MACHINE,
    }


def files(folder):
    return {path: path.stat().st_mtime_ns for path in (folder / "trials").rglob("*.json")}


def test_copying_over_seeds_is_gone_on_with_where_the_time_was_up(tmp_path, capsys):
    recipe = copying.CopyingRecipe(
        output=tmp_path,
        seeds=2,
        learning_rates=(1e-2,),
        shortest=3,
        longest=5,
        curriculum=("2-3:2",),
        steps=2,
        rows=2,
        examples=3,
        d_model=16,
        d_state=8,
        headdim=8,
        machine=MACHINE,
    )
    assert copying.main(replace(recipe, minutes=0.0)) is None
    assert not list(tmp_path.rglob("*.json"))
    one = copying.main(replace(recipe, seeds=1))
    before = files(tmp_path)
    record = copying.main(recipe)
    assert one is not None
    assert record is not None
    assert before.items() <= files(tmp_path).items()
    assert (one.seeds, record.seeds) == ((0,), (0, 1))
    assert [arm.label for arm in record.arms] == ["zero", "state_passing"]
    assert [cell["length"] for cell in record.cells] == [5, 15]
    assert record.arms[0].scores["character_accuracy"].shape == (1, 2, 2)
    assert np.isfinite(record.arms[1].losses).all()
    assert record.state == "2 layers of 4 x 8 x 8 = 512 numbers a row"
    stored = load_record(tmp_path / "records" / "sweep.json")
    np.testing.assert_array_equal(stored.arms[1].mean, record.arms[1].mean)
    assert stored.sentence == record.sentence
    assert {path.name for path in (tmp_path / "figures").iterdir()} == FIGURES
    for words in ("Seeds that learn:", "Table 1: 0.27 and 0.47", "At length 15"):
        assert words in record.sentence
    assert record.sentence in capsys.readouterr().out
    settings = [load_record(path).settings for path in tmp_path.rglob("training-*.json")]
    probabilities = {s["intervention"].get("reset_probability") for s in settings}
    assert probabilities == {None, 0.1}


@pytest.mark.parametrize("passing_from", [0, 1])
def test_copying_arms_have_the_stages_in_common_before_states_are_passed(passing_from, tmp_path):
    sizes = {"shortest": 3, "longest": 5, "curriculum": ("2-3:2",), "steps": 1, "rows": 2, "examples": 2}
    recipe = copying.CopyingRecipe(
        output=tmp_path, seeds=1, learning_rates=(1e-2,), passing_from=passing_from, d_model=16, d_state=8, headdim=8,
        machine=MACHINE, **sizes,
    )  # fmt: skip
    copying.main(recipe)
    before = files(tmp_path)
    copying.main(recipe)
    assert files(tmp_path) == before
    with pytest.raises(EverlongError, match=r"was begun with training\.batch_size 2, now 4 is asked for"):
        copying.main(replace(recipe, rows=4))  # old trials are not passed off as trials of new settings
    of_arm = {
        label: {path.parts[-3] for path in (tmp_path / "trials" / label).rglob("training-*.json")}
        for label in ("zero", "state_passing")
    }
    everything = {"stage-0", "stage-1"}
    assert of_arm == {"zero": everything, "state_passing": everything if passing_from == 0 else {"stage-1"}}


def test_a_stage_that_is_none_is_refused(tmp_path):
    with pytest.raises(EverlongError, match="--curriculum 5:10 is no stage"):
        copying.main(copying.CopyingRecipe(output=tmp_path, curriculum=("5:10",)))


def test_passkey_from_a_base_that_was_diagnosed_first(tiny, tmp_path):
    settings = {**tiny, "learning_rates": (1e-2, 1e-3)}
    recipe = passkey.PasskeyRecipe(output=tmp_path, steps=2, farthest=2, digits=2, **settings)
    record = passkey.main(recipe)
    assert record is not None
    assert [arm.label for arm in record.arms] == ["untuned", "zero", "fitted_noise", "state_passing"]
    assert {(cell["length"], cell["depth"]) for cell in record.cells} == {
        (length, depth) for length in (64, 128) for depth in (0.1, 0.5, 0.9)
    }
    assert np.isnan(record.arms[0].losses).all()
    assert record.arms[1].losses.shape == (2, 1)
    assert record.arms[1].losses[0] != record.arms[1].losses[1]
    assert record.settings["base"]
    assert {path.name for path in (tmp_path / "figures").iterdir()} == FIGURES
    assert "as Fig. 7 has it" in record.sentence


def test_babilong_few_shot_and_fine_tuned_before_and_after_the_repair(tiny, tmp_path):
    babi = tmp_path / "babi"
    write_babi(babi)
    settings = {**tiny, "context": 512, "vocab_size": 256, "bases": tmp_path / "base"}
    settings["diagnosis"] = DiagnosisConfig(max_length=1024, documents=2, targets_per_bucket=16, quick=True)
    recipe = babilong.BABILongRecipe(
        output=tmp_path / "run", babi=str(babi), questions=("qa1", "qa6"), farthest=2, **settings
    )
    records = babilong.main(recipe)
    for name, lengths in (("few-shot", {0, 1024}), ("fine-tuned", {512, 1024})):
        record = records[name]
        assert record is not None
        assert [arm.label for arm in record.arms] == ["before", "zero", "state_passing"]
        assert {cell["length"] for cell in record.cells} == lengths
        assert all(set(floors) == {"most frequent"} for floors in record.floors)
        assert "valid" in record.measures
        assert (tmp_path / "run" / name / "figures" / "scores.svg").is_file()
    (epoch,) = {load_record(path).steps for path in (tmp_path / "run" / "fine-tuned").rglob("training-finetuned.json")}
    questions = sum(len(read_questions(str(babi), name, training=True)) for name in ("qa1", "qa6"))
    assert epoch == questions // 2  # every question of both files once, two a step


def test_recall_sweeps_facts_and_distance_apart(tiny, tmp_path):
    record = recall.main(recall.RecallRecipe(output=tmp_path, steps=2, farthest=4, facts=(1, 2), **tiny))
    assert record is not None
    cells = {(cell["length"], cell["facts"], cell["distance"]) for cell in record.cells}
    first = {(length, facts, None) for length in (64, 128, 256) for facts in (1, 2)}
    apart = {(256, facts, distance) for facts in (1, 2) for distance in (0, 16, 32, 64, 128)}
    assert cells == first | apart
    assert len(record.in_range) == 2
    assert "1 fact (floor" in record.sentence
    assert "2 facts (floor" in record.sentence


def test_a_base_that_is_not_shown_to_fail_stops_the_recipe(tiny, tmp_path):
    recipe = BaseConfig(output=tmp_path, **{**tiny, "must_fail": True})
    with pytest.raises(EverlongError, match="is not shown to fail"):
        failing_base(recipe)


def test_a_base_of_another_context_is_refused(tiny, tmp_path):
    recipe = BaseConfig(output=tmp_path, **tiny)
    trained_base(recipe)
    with pytest.raises(EverlongError, match="trained at a context of 64, this recipe's is 128: give --context 64"):
        trained_base(replace(recipe, context=128))
