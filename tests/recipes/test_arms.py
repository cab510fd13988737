"""The recipe of the arms: bases of any size, trained once, and one experiment a list of arms."""

import pytest

from everlong.diagnostics.config import DiagnosisConfig
from everlong.errors import EverlongError
from everlong.interventions.arms import parse_arm
from everlong.recipes.arms import ARMS, ArmsRecipe, main
from everlong.records.files import load_record
from everlong.workflows.config import MachineConfig


def test_every_list_is_of_arms_that_there_are_each_once():
    for arms in ARMS.values():
        assert len(set(arms)) == len(arms)
        assert all(parse_arm(text).label == text for text in arms)


def test_the_noises_taken_apart_are_the_arms_of_the_correction():
    settings = [dict(parse_arm(text).settings) for text in ARMS["noise"] if text.startswith("correlated")]
    assert {"variance": "none", "rank": 0} in settings  # the mean alone
    assert {"variance": "head", "rank": 0} in settings  # element mean, head variance
    assert {"mean": "head", "rank": 0} in settings  # head mean, element variance
    assert [s["rank"] for s in settings if set(s) == {"rank"}] == [0, 8, 32]


def test_bases_of_a_chosen_size_are_trained_once_and_repaired(tmp_path, capsys):
    recipe = ArmsRecipe(
        output=tmp_path,
        arms="scale",
        bases=2,
        seeds=1,
        d_model=32,
        n_layer=1,
        training_steps=2,
        steps=2,
        diagnosis=DiagnosisConfig(max_length=128, documents=2, targets_per_bucket=16),
        machine=MachineConfig(backend="chunked"),
    )
    main(recipe)
    record = load_record(tmp_path / "scale" / "records" / "experiment.json")
    assert len(record.arms) == 2 + len(ARMS["scale"])
    assert len(record.bases) == 2
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("records/*.json")}
    main(recipe)
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("records/*.json")}
    assert str(tmp_path / "scale" / "report.html") in capsys.readouterr().out


def test_an_unknown_list_names_the_known_ones(tmp_path):
    with pytest.raises(
        EverlongError, match="--arms best is unknown; known: ladder, noise, paper, prefill, rivals, scale"
    ):
        main(ArmsRecipe(output=tmp_path, arms="best"))
