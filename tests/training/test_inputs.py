"""What a training rests on beside its settings stands in its record, and a resume has to find it unchanged."""

import json

import pytest

from everlong.errors import EverlongError
from everlong.interventions.methods import create
from everlong.progress import Progress
from everlong.records.training import Training
from everlong.training.loop import train
from tests.training.arms import CONFIG, PHASE, Crash, Tokens, open_run, tiny_model


def work(folder, inputs, *, crash: int | None = None) -> Training:
    def before(step: int) -> None:
        if step == crash:
            raise Crash

    with open_run(folder) as run:
        method, progress = create("zero", seed=0), Progress()
        given = {"run": run, "phase": PHASE, "progress": progress, "label": "an arm", "inputs": inputs}
        return train(tiny_model(), Tokens(before), method, CONFIG, **given)


def test_a_resume_on_another_text_or_from_another_model_is_refused(tmp_path):
    begun = {"training_text": "abc", "start_model": None}
    with pytest.raises(Crash):
        work(tmp_path / "run", begun, crash=7)
    for changed in ({"training_text": "abd"}, {"start_model": "abc"}):
        with pytest.raises(EverlongError, match=r"written with other settings \(inputs .*abc"):
            work(tmp_path / "run", {**begun, **changed})
    assert work(tmp_path / "run", begun).settings["inputs"] == begun


def test_a_run_from_before_they_were_noted_down_goes_on(tmp_path):
    with pytest.raises(Crash):
        work(tmp_path / "run", None, crash=7)
    (index,) = (tmp_path / "run" / "checkpoints").rglob("checkpoint.json")
    assert "inputs" not in json.loads(index.read_text())["settings"]
    assert work(tmp_path / "run", {"training_text": "abc"}).settings["inputs"] == {"training_text": "abc"}
