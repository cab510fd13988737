"""What docs/trainer.md shows, run as it stands there."""

import re
from functools import partial
from pathlib import Path

import pytest
import torch

from everlong import loading
from tests.integrations.trainers import model_of, shuffled

PAGE = Path(__file__).resolve().parents[2] / "docs" / "trainer.md"


@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true:UserWarning")  # the snippet runs without a GPU
def test_the_snippet_trains_evaluates_and_leaves_models(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(loading, "open_model", partial(loading.open_model, backend="chunked"))  # compiles nothing
    loading.save(model_of(), tmp_path / "model")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names = {
        "MODEL": str(tmp_path / "model"),
        "OUTPUT": str(tmp_path / "run"),
        "rows": shuffled(),
        "held_out": shuffled(1),
    }
    exec(compile(code, str(PAGE), "exec"), names)
    assert "eval_loss" in capsys.readouterr().out
    before, after = model_of(), loading.load(tmp_path / "run" / "checkpoint-6")
    assert not torch.equal(before.backbone.embedding.weight, after.backbone.embedding.weight)
    assert int(names["trainer"].intervention.ages(torch.arange(4)).max()) > 0
