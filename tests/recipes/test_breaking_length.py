"""The recipe runs end to end at a toy size, and goes on with what is there."""

from everlong.crossing import Crossing
from everlong.data.config import DataConfig
from everlong.diagnostics.config import DiagnosisConfig
from everlong.recipes.breaking_length import Break, BreakingLengthRecipe, compared, main


def test_each_context_and_each_model_gets_a_prediction_and_a_measured_break(tmp_path, model, text, capsys):
    recipe = BreakingLengthRecipe(
        output=tmp_path / "runs",
        contexts=(16,),
        models=(str(model),),
        steps=2,
        data=DataConfig(data=(str(text),), tokenizer="bytes"),
        diagnosis=DiagnosisConfig(max_length=128, documents=8, targets_per_bucket=16),
    )
    found = main(recipe)
    assert [each.context for each in found] == [16, 16]
    assert capsys.readouterr().out.count("context 16: predicted break") == 2
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("records/*.json")}
    assert main(recipe) == found
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("records/*.json")}


def test_a_prediction_is_set_against_what_was_measured():
    passes = Crossing(position=100.0, lower=80.0, upper=None)
    assert Break(64, 250, 128, passes).words == (
        "context 64: predicted break 250, measured 128, the mean excess passes the tolerance at 100 [80, none], "
        "predicted / that 2.50"
    )
    assert Break(64, None, None, Crossing(None, None, None)).words.endswith("at none [none, none]")


def test_a_prediction_is_compared_with_what_the_training_length_alone_says():
    def broken(context, predicted, at):
        return Break(context, predicted, None, Crossing(at, at, at))

    exact = [broken(64, 100, 100.0), broken(32, 200, 200.0), broken(128, 300, 300.0)]
    said = compared([*exact, Break(16, None, None, Crossing(None, None, None))])
    assert said.startswith("3 models:")
    assert (
        "prediction / measured 1.00 in the geometric mean, standard deviation 0.00 octaves, rank correlation +1.00"
        in said
    )
    assert "rank correlation +0.50" in said
    assert compared(exact[:2]) == "2 models to compare, 3 are needed"
