"""The figures of an evaluation show the records, and only what can be told apart."""

import csv

import numpy as np
import pytest

from everlong.records.tasks import Score, TaskCell, TaskEvaluation
from everlong.reports._results import load_results
from everlong.reports.figures import write_figures
from everlong.reports.passkey_figure import passkey_figure
from everlong.reports.task_figure import task_figure
from everlong.reports.task_table import task_lines, task_table
from everlong.runs import Run


def cell(task, mean, **parameters):
    values = (np.arange(20) < round(20 * mean)).astype(float)
    score = Score(mean=mean, lower=max(mean - 0.1, 0.0), upper=min(mean + 0.1, 1.0))
    return TaskCell(
        task=task,
        parameters=parameters,
        examples=20,
        tokens_read=100,
        scores={"accuracy": score},
        floors={"chance": 0.1, "most frequent": 0.2},
        values={"accuracy": values},
        notes=("3 of 9 questions are left out",) if parameters.get("question") == "qa1" else (),
        seconds=1.0,
    )


def evaluation(task, cells, **fields):
    return TaskEvaluation(
        **{
            "task": task,
            "measures": ("accuracy",),
            "length_is": "tokens",
            "settings": {},
            "model": "tiny",
            "architecture": "gla",
            "parameters": 7,
            "context": 512,
            "tokenizer": "bytes",
            "cells": tuple(cells),
            "confidence": 0.95,
            "seed": 0,
            "backend": "chunked",
            "device": "cpu",
            "dtype": "float32",
            "seconds": 1.0,
            **fields,
        }
    )


PASSKEY = evaluation(
    "passkey", [cell("passkey", mean, length=n, depth=d) for n, mean in ((256, 1.0), (1024, 0.4)) for d in (0.1, 0.9)]
)
QUESTIONS = [f"qa{number}" for number in range(1, 11)]
BABILONG = evaluation(
    "babilong", [cell("babilong", i / 10, length=n, question=q) for n in (0, 1024) for i, q in enumerate(QUESTIONS)]
)
RECALL = evaluation("recall", [cell("recall", 0.5, length=n, facts=f) for n in (256, 512) for f in (2, 8)])


@pytest.fixture
def run(tmp_path):
    with Run.create(tmp_path / "run", "evaluate", {}) as run:
        for record in (PASSKEY, BABILONG, RECALL):
            run.save(f"evaluation-{record.task}", record)
        yield run


def test_both_figures_are_drawn_with_every_cell_in_their_data(run):
    charts = write_figures(load_results(run), run.path / "figures")
    assert [chart.name for chart in charts] == ["passkey", "tasks"]
    rows = {
        name: list(csv.DictReader((run.path / "figures" / f"{name}.csv").read_text(encoding="utf-8").splitlines()))
        for name in ("passkey", "tasks")
    }
    assert [float(row["mean"]) for row in rows["passkey"]] == [1.0, 1.0, 0.4, 0.4]
    assert len(rows["tasks"]) == len(BABILONG.cells) + len(RECALL.cells)
    assert {row["floor"] for row in rows["tasks"]} == {"0.2"}


def test_too_many_lines_become_their_mean(run):
    chart = task_figure(load_results(run))
    assert chart is not None
    figure = chart.figure
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["babilong, mean of 10", "recall facts 2", "recall facts 8"]
    assert figure.axes[0].lines[0].get_ydata() == pytest.approx([0.45, 0.45])


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


def test_the_table_has_a_row_a_cell_and_the_notes_below(run):
    table = task_table(BABILONG)
    assert table.row_count == len(BABILONG.cells)
    lines = task_lines(BABILONG)
    assert lines[1:] == tuple(f"length {n}, question qa1: 3 of 9 questions are left out." for n in ("0", "1,024"))
