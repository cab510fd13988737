"""Labels of the models of a diagnosis, the bound for tests, and what is said where documents are missing."""

from dataclasses import replace

import pytest

from everlong.errors import EverlongError
from everlong.workflows._overview import labels_of, overview
from everlong.workflows.config import DiagnoseConfig
from tests.reports.synthetic import make_diagnosis


def test_a_repaired_model_goes_by_its_method_and_no_two_labels_are_equal():
    models = ("bundled", "runs/a/models/state_passing", "runs/b/models/state_passing", "zero", "org/na me", "../before")
    assert labels_of(models) == ("before", "state_passing", "state_passing-2", "zero-model", "na_me", "before-2")
    assert labels_of(("a/models/scratch", "b/models/scratch")) == ("before", "scratch-2")  # else one name in the legend


def test_the_bound_is_exceeded_where_the_lower_end_of_a_judged_bucket_is_above_it():
    diagnosis = make_diagnosis()
    excess = diagnosis.excess
    lower = (9.0, 0.0, 0.1, 0.3, 9.0, *(-1.0,) * (len(excess.lower) - 5))  # the first lies within the training length
    documents = (32, 32, 32, 32, 7, *(32,) * (len(excess.lower) - 5))  # the fifth has too few to be judged
    diagnoses = {"before": replace(diagnosis, excess=replace(excess, lower=lower, documents=documents))}
    record = overview(DiagnoseConfig(fail_above=0.1), diagnoses, {}, [])
    assert len(record.exceeded) == 1
    assert record.exceeded[0].startswith(f"before at {excess.starts[3]:,}-{excess.stops[3]:,} tokens")
    assert "lower end of its 95% interval, +0.300, is above 0.1" in record.exceeded[0]
    assert overview(DiagnoseConfig(fail_above=0.3), diagnoses, {}, []).exceeded == ()
    assert overview(DiagnoseConfig(), diagnoses, {}, []).exceeded == ()


def test_a_bound_that_nothing_can_be_judged_on_is_an_error_and_not_a_pass():
    diagnosis = make_diagnosis()
    few = replace(diagnosis.excess, documents=(7,) * len(diagnosis.excess.starts))
    with pytest.raises(EverlongError, match="cannot be judged"):
        overview(DiagnoseConfig(fail_above=0.1), {"before": replace(diagnosis, excess=few)}, {}, [])


def test_one_sentence_holds_the_verdict_on_every_model():
    diagnoses = {label: make_diagnosis(label) for label in ("before", "state_passing")}
    sentence = overview(DiagnoseConfig(), diagnoses, {}, []).sentence
    assert sentence.startswith("bundled (mamba2-64) breaks at 512 tokens (excess +")
    assert "; state passing is undecided (excess " in sentence
    assert sentence.endswith("(95% sure, tolerance 0.02 nats, 32 documents).")
    assert (
        overview(DiagnoseConfig(), {"before": diagnoses["before"]}, {}, []).sentence
        == "The model breaks at 512 tokens."
    )


def test_models_that_did_not_read_the_same_rows_are_named():
    diagnoses = {"before": make_diagnosis(), "other": replace(make_diagnosis(), label="other", offsets=(0,) * 32)}
    assert any(
        "other did not read the same rows" in line for line in overview(DiagnoseConfig(), diagnoses, {}, []).warnings
    )


def test_measures_are_chosen_by_name_or_set_and_an_unknown_one_is_refused():
    assert DiagnoseConfig(measures=("none",)).chosen_measures == ()
    assert DiagnoseConfig(measures=("used_memory", "decay_horizons")).chosen_measures == (
        "decay_horizons",
        "used_memory",
    )
    assert len(DiagnoseConfig().chosen_measures) > 5
    with pytest.raises(EverlongError, match="--measures entropy: no such measure; known: all"):
        DiagnoseConfig(measures=("entropy",))
