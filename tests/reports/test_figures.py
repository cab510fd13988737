import csv
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from everlong.records.training import Exposure
from everlong.reports._chart import for_page
from everlong.reports._results import load_results
from everlong.reports._styles import METHODS, styles_of
from everlong.reports.figures import write_figures
from everlong.runs import Run
from tests.reports.synthetic import MODELS, make_diagnosis, make_repair, make_run, make_training

NAMES = ("loss-by-position", "excess-by-position", "exposure", "training-loss")


def table(path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_figure_is_there_in_three_formats(finished):
    files = {path.name for path in (finished / "figures").iterdir()}
    assert files == {f"{name}.{ending}" for name in NAMES for ending in ("svg", "pdf", "csv")}
    for name in NAMES:
        ElementTree.parse(finished / "figures" / f"{name}.svg")
        assert (finished / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")


def test_the_data_of_the_losses_equals_the_curves(finished):
    rows = table(finished / "figures" / "loss-by-position.csv")
    for label in MODELS:
        curve = make_diagnosis(label).curves[0]
        mine = [row for row in rows if row["label"] == label and row["policy"] == "carry"]
        np.testing.assert_array_equal([int(row["stop"]) for row in mine], curve.stops)
        np.testing.assert_allclose([float(row["mean_loss"]) for row in mine], curve.losses.mean(axis=0), rtol=1e-12)
        errors = curve.losses.std(axis=0, ddof=1) / np.sqrt(len(curve.losses))
        np.testing.assert_allclose([float(row["standard_error"]) for row in mine], errors, rtol=1e-9)
    assert {row["policy"] for row in rows if row["label"] == "before"} >= {"restart", "window:64", "window:512"}


def test_the_data_of_the_excess_equals_the_records(finished):
    rows = table(finished / "figures" / "excess-by-position.csv")
    best = {row.label: row.control_best for row in make_repair().rows}
    for label in MODELS:
        for against, excess in (("own window", make_diagnosis(label).excess), ("control best", best[label])):
            mine = [row for row in rows if row["label"] == label and row["against"] == against]
            for column in ("mean", "lower", "upper"):
                assert [float(row[column]) for row in mine] == list(getattr(excess, column))
            assert [int(row["documents"]) for row in mine] == list(excess.documents)


def test_the_data_of_training_equals_the_metrics_and_the_exposure(finished):
    with Run.open(finished) as run:
        results = load_results(run)
    rows = table(finished / "figures" / "training-loss.csv")
    for label, points in results.losses.items():
        assert [(int(row["step"]), float(row["loss"])) for row in rows if row["label"] == label] == list(points)
    rows = table(finished / "figures" / "exposure.csv")
    for label, training in results.trainings.items():
        mine = [float(row["weighted_scored_tokens"]) for row in rows if row["label"] == label]
        assert mine == list(training.exposure.tokens)


def test_methods_keep_their_look_in_any_company_and_strangers_get_one_each():
    assert styles_of(["x", "zero", "y"])["zero"] == styles_of(["zero"])["zero"] == METHODS["zero"]
    looks = styles_of([*METHODS, "x", "y", "z"]).values()
    assert len({(look.colour, str(look.dashes)) for look in looks}) == len(looks)
    assert len({look.marker for look in looks}) == len(looks)


def test_identities_of_two_figures_in_one_page_do_not_meet(finished):
    svg = (finished / "figures" / "exposure.svg").read_text(encoding="utf-8")
    one, two = (for_page(svg, name) for name in ("one", "two"))
    identities = [set(re.findall(r'\bid="([^"]*)"', drawing)) for drawing in (one, two)]
    assert not identities[0] & identities[1]
    used = set(re.findall(r'href="#([^"]*)"', one)) | set(re.findall(r"url\(#([^)]*)\)", one))
    assert used
    assert used <= identities[0]


def test_names_may_hold_dollars_scripts_and_underscores(tmp_path):
    with make_run(tmp_path / "run", verb="diagnose", records=()) as run:
        for label in ("_$x^", "模型", "a" * 200):
            run.save(f"diagnosis-{label}", replace(make_diagnosis(), label=label, model=label))
        drawn = write_figures(load_results(run), tmp_path / "figures")
    assert [chart.name for chart in drawn] == ["loss-by-position", "excess-by-position"]


@pytest.mark.parametrize("context", [1, 1000])
def test_what_was_not_measured_is_not_drawn(tmp_path, context):
    diagnosis = make_diagnosis()
    nothing = (float("nan"),) * len(diagnosis.excess.mean)
    excess = replace(diagnosis.excess, mean=nothing, lower=nothing, upper=nothing)
    diagnosis = replace(diagnosis, context=context, excess=excess)
    with make_run(tmp_path / "run", verb="diagnose", records=()) as run:
        run.save("diagnosis-before", diagnosis)
        assert len(write_figures(load_results(run), tmp_path / "figures")) == 2


@pytest.mark.parametrize("measured", [True, False])
def test_a_training_of_one_step_is_drawn_without_a_warning(tmp_path, measured):
    """It has met states of age zero and more, and of no other age that is counted."""
    once = replace(make_training("zero"), exposure=Exposure(ages=(0,), tokens=(64.0,), scored_tokens=64))
    with make_run(tmp_path / "run", records=["diagnosis-before"] if measured else []) as run:
        run.save("training-zero", once)
        run.log({"phase": "zero", "step": 0, "loss": 5.5})
        write_figures(load_results(run), tmp_path / "figures")
    assert [row["age"] for row in table(tmp_path / "figures" / "exposure.csv")] == ["0"]
