"""The figures of an evaluation show the records, and only what can be told apart; their data hold all of them."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from everlong.records.tasks import Score
from everlong.reports._results import load_results
from everlong.reports.figures import write_figures
from everlong.reports.passkey_figure import passkey_figure
from everlong.reports.task_figure import task_figure
from everlong.runs import Run
from tests.reports.evaluated import BABILONG, COPYING, NOTE, PASSKEY, RECALL, cell, evaluation

LINES = evaluation("recall", [cell("recall", 0.5, length=n, facts=f) for n in (256, 512) for f in (2, 8)])


@pytest.fixture
def run(tmp_path):
    with Run.create(tmp_path / "run", "evaluate", {}) as run:
        for record in (PASSKEY, BABILONG, LINES):
            run.save(f"evaluation-{record.task}", record)
        yield run


def test_every_measure_floor_and_note_of_every_cell_is_in_the_data(tmp_path):
    with Run.create(tmp_path / "all", "evaluate", {"task": ["passkey", "recall", "babilong", "copying"]}) as run:
        for record in (PASSKEY, BABILONG, RECALL, COPYING):
            run.save(f"evaluation-{record.task}", record)
        charts = write_figures(load_results(run), run.path / "figures")
    assert [chart.name for chart in charts] == ["passkey", "tasks"]
    for chart, records in zip(charts, ((PASSKEY,), (RECALL, BABILONG, COPYING)), strict=True):
        rows = list(csv.DictReader(chart.csv.splitlines()))
        cells = [cell for record in records for cell in record.cells]
        assert len(rows) == len(cells)
        for row, one in zip(rows, cells, strict=True):
            assert row["task"] == one.task
            for name, value in one.parameters.items():
                assert row[name] == str(value)
            for name, score in one.scores.items():
                found = [float(row[f"{name}{end}"]) for end in ("", "_lower", "_upper")]
                assert found == [score.mean, score.lower, score.upper]
            for name, floor in one.floors.items():
                assert float(row[f"floor_{name.replace(' ', '_')}"]) == floor
            assert row["notes"] == (NOTE if one.notes else "")
    assert rows[-1]["valid"] == rows[-1]["question"] == ""  # copying has neither


def test_too_many_lines_become_their_mean(run):
    chart = task_figure(load_results(run))
    assert chart is not None
    figure = chart.figure
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["babilong, mean of 10", "recall facts 2", "recall facts 8"]
    assert figure.axes[0].lines[0].get_ydata() == pytest.approx([0.45, 0.45])


@pytest.mark.parametrize(("mean", "lower", "upper"), [(0.0, 0.0, 0.3), (1.0, 0.7, 1.0), (0.5, 0.3, 0.8)])
def test_a_mean_over_cells_that_came_out_alike_keeps_a_width(run, mean, lower, upper):
    score = Score(mean=mean, lower=lower, upper=upper)
    cells = tuple(replace(one, scores={**one.scores, "accuracy": score}) for one in BABILONG.cells)
    run.save("evaluation-babilong", replace(BABILONG, cells=cells))
    chart = task_figure(load_results(run))
    assert chart is not None
    band = np.asarray(chart.figure.axes[0].collections[0].get_paths()[0].vertices)
    assert band[:, 1].min() == pytest.approx(mean - (mean - lower) / 10**0.5)
    assert band[:, 1].max() == pytest.approx(mean + (upper - mean) / 10**0.5)


def test_the_line_at_the_training_length_stands_between_the_lengths_and_only_there(run):
    chart = passkey_figure(load_results(run))
    assert chart is not None
    assert "training length of 512" in chart.caption
    assert len(chart.figure.axes[0].lines) == 1
    run.save("evaluation-passkey", evaluation("passkey", PASSKEY.cells, context=64))
    chart = passkey_figure(load_results(run))
    assert chart is not None
    assert "training length" not in chart.caption
    assert not chart.figure.axes[0].lines
