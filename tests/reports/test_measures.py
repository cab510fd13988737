"""Figures and words of the measures, from made-up records."""

import csv
import re
from dataclasses import replace

import numpy as np
import pytest

from everlong.diagnostics.measures import MEASURES as REGISTRY
from everlong.reports._paper import paper_curves
from everlong.reports._results import MEASURES, load_results
from everlong.reports.figures import write_figures
from everlong.reports.findings import SAYS, TITLES, findings
from everlong.reports.page import write_report
from everlong.runs import Run
from tests.reports.measured import HARM, MAKERS, POSITIONS, make_measures, make_overview
from tests.reports.synthetic import make_diagnosis
from tests.reports.test_page import HOSTILE, Page

NAMES = (
    *("effective-remembrance", "used-memory", "state-std", "worst-heads", "transplant", "state-distance"),
    *("decay-horizons", "predicted-break", "beside-the-paper"),
)


def fill(run: Run, labels=tuple(HARM), model: str = "bundled") -> None:
    for label in labels:
        run.save(f"diagnosis-{label}", make_diagnosis(label, model))
        for name, record in make_measures(label, model).items():
            run.save(f"{name}-{label}", record)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with Run.create(tmp_path_factory.mktemp("measured") / "run", "diagnose", {"models": ["bundled"]}) as run:
        fill(run)
        run.save("overview", make_overview())
        write_report(run, paper=True)
        return run.path


def table(path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_measure_of_the_registry_has_its_place_in_a_report():
    assert set(REGISTRY) == set(MEASURES) == set(TITLES) == set(SAYS) == set(MAKERS)


def test_every_figure_is_there_in_three_formats_and_on_the_page(folder):
    page = (folder / "report.html").read_text(encoding="utf-8")
    for name in NAMES:
        for ending in ("svg", "pdf", "csv"):
            assert (folder / "figures" / f"{name}.{ending}").stat().st_size > 100
        assert f'id="figure-{name}"' in page


def test_the_data_beside_the_figures_equal_the_records(folder):
    for label in HARM:
        measures = make_measures(label)
        mine = [row for row in table(folder / "figures" / "state-std.csv") if row["label"] == label]
        std = [row for row in mine if row["statistic"] == "std"]
        assert [int(row["tokens_read"]) for row in std] == list(POSITIONS)
        np.testing.assert_allclose([float(r["mean"]) for r in std], measures["state_statistics"].full["std"].mean)
        rows = [row for row in table(folder / "figures" / "used-memory.csv") if row["label"] == label]
        np.testing.assert_allclose([float(row["mean"]) for row in rows], measures["used_memory"].over_full.mean)
        rows = [r for r in table(folder / "figures" / "excess-by-position.csv") if r["label"] == label]
        rows = [row for row in rows if row["against"] == "own window, recentred"]
        np.testing.assert_allclose([float(row["mean"]) for row in rows], measures["mean_drift"].recentred.mean)


def test_the_data_beside_the_figures_have_the_predicted_growth_and_the_single_heads(folder):
    for label in HARM:
        measures = make_measures(label)
        rows = [row for row in table(folder / "figures" / "predicted-break.csv") if row["label"] == label]
        growth = measures["decay_horizons"].growth
        np.testing.assert_allclose([float(row["growth"]) for row in rows], growth.ravel())
        assert {row["predicted_break"] for row in rows} == {"512" if label == "before" else ""}
        (measured,) = {row["measured"] for row in rows}
        assert (measured != "") == (label == "before")
        rows = [row for row in table(folder / "figures" / "transplant.csv") if row["label"] == label]
        heads = [float(row["mean"]) for row in rows if row["part"] in ("L1H0", "L1H1", "L2H0", "L2H1")]
        np.testing.assert_allclose(heads, measures["transplant"].heads_taken.mean.ravel())


def test_the_page_says_the_verdict_the_findings_and_what_exceeded_the_bound(folder):
    page = Page((folder / "report.html").read_text(encoding="utf-8"))
    headline = page.text[page.text.index("Everlong 0") :]
    assert make_overview().sentence in re.sub(r"\s+", " ", headline)[:400]
    for words in (
        *("excess over its own window", "breaks at 512"),
        *("Exceeds the bound that was asked for: before at 4,096", "Predicted from within the training length"),
        *("taking the drift of the mean state away every 64 tokens leaves", "The model uses 64 tokens.", "recentre"),
        "Of the heads of layer 2 alone, L2H0 takes most away: +0.800",
        *("the head that leaves its law farthest is L0H0".capitalize()[:20], "a correlation is no cause".capitalize()),
    ):
        assert page.has(words), words
    assert not page.has("unfinished")


def test_without_its_last_record_a_diagnosis_is_unfinished_and_shows_what_is_there(tmp_path):
    with Run.create(tmp_path / "run", "diagnose", {}) as run:
        run.save("diagnosis-before", make_diagnosis())
        run.save("used_memory-before", make_measures("before")["used_memory"])
        page = Page(write_report(run).read_text(encoding="utf-8"))
    assert page.has("This run is unfinished")
    assert page.has("The model uses 64 tokens.")


def test_names_and_parts_from_a_hostile_model_are_escaped(tmp_path):
    with Run.create(tmp_path / "run", "diagnose", {"models": [HOSTILE]}) as run:
        fill(run, model=HOSTILE)
        record = make_measures("before")["transplant"]
        run.save("transplant-before", replace(record, parts=(*record.parts[:3], *(HOSTILE,) * (len(record.parts) - 3))))
        memory = make_measures("before")["used_memory"]
        run.save("used_memory-before", replace(memory, sentence=HOSTILE))
        run.save("overview", replace(make_overview(HOSTILE), warnings=(HOSTILE,), exceeded=(HOSTILE,)))
        page = Page(write_report(run, paper=True).read_text(encoding="utf-8"))
    assert not {"script", "img"} & {tag for tag, _ in page.elements}
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)


def test_what_could_not_be_measured_is_neither_drawn_nor_told(tmp_path):
    nothing = np.full((4, len(POSITIONS)), np.nan)
    record = make_measures("before")["state_distance"]
    laws = replace(record.state, in_drifts=replace(record.state.in_drifts, mean=nothing))
    with Run.create(tmp_path / "run", "diagnose", {}) as run:
        run.save("diagnosis-before", make_diagnosis())
        run.save("state_distance-before", replace(record, state=laws))
        results = load_results(run)
        drawn = write_figures(results, tmp_path / "figures")
    assert "state-distance" not in {chart.name for chart in drawn}
    assert any("no unit" in line for line in findings("before", make_diagnosis(), results.measures))


def test_the_paper_s_curves_have_gaps_where_they_leave_its_figure():
    curves = {(curve.figure, curve.name): curve for curve in paper_curves()}
    assert len(curves) == 18
    assert np.isnan(curves["perplexity", "780m base"].values[-6:]).all()
    assert curves["perplexity", "130m base"].values[6] == 10.1
    assert all(len(curve.t) == len(curve.values) for curve in curves.values())
