"""The recipe runs end to end at a toy size, and goes on with what is there."""

from everlong.data.config import DataConfig
from everlong.diagnostics.config import DiagnosisConfig
from everlong.recipes.breaking_length import Break, BreakingLengthRecipe, main
from tests.cli.conftest import text  # noqa: F401  (a fixture)


def test_each_context_gets_a_model_a_prediction_and_a_measured_break(tmp_path, text, capsys):  # noqa: F811
    recipe = BreakingLengthRecipe(
        output=tmp_path / "runs",
        contexts=(16,),
        steps=2,
        data=DataConfig(data=(str(text),), tokenizer="bytes"),
        diagnosis=DiagnosisConfig(max_length=128, documents=8, targets_per_bucket=16),
    )
    (found,) = main(recipe)
    assert found.context == 16
    assert "context 16: predicted break" in capsys.readouterr().out
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("records/*.json")}
    assert main(recipe) == (found,)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("records/*.json")}


def test_a_prediction_is_set_against_what_was_measured():
    assert Break(64, 256, 128).words == "context 64: predicted break 256, measured 128, ratio 2.00"
    assert Break(64, None, 128).words == "context 64: predicted break none, measured 128"
