"""The terminal's tables of tasks and of sweeps: all columns and whole numbers at any width."""

from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from everlong.records.sweep import Sweep, SweepArm
from everlong.records.tasks import Score
from everlong.reports._task_blocks import score_words
from everlong.reports.sweep_table import other_table, sweep_table
from everlong.reports.task_table import task_lines, task_table
from tests.reports.evaluated import BABILONG, EVALUATIONS, NOTE, PASSKEY, RECALL, cell, evaluation
from tests.reports.test_tables import printed


@pytest.mark.parametrize("width", [80, 100, 140])
@pytest.mark.parametrize("record", EVALUATIONS, ids=lambda record: record.task)
def test_the_task_table_fits_and_cuts_no_number(record, width):
    lines = printed(task_table(record), width).splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "…" not in text
    words = text.split()
    for one in record.cells:
        for score in one.scores.values():
            assert f"{score.mean:.2f} [{score.lower:.2f},{score.upper:.2f}]" in text
        for floor in one.floors.values():
            assert f"{floor:.2g}" in words
        for value in one.parameters.values():
            assert (f"{value:,}" if isinstance(value, int) else str(value)) in words
    headers = "_".join((*record.cells[0].parameters, *record.measures, "nats"))
    assert set(headers.split("_")) <= set(words)
    assert words.count("floor:") == 3


def test_floors_and_valid_rate_stand_in_the_first_piece_beside_the_score():
    first, *others = printed(task_table(BABILONG), 80).split("\n\n")
    assert others, "a table of 4 scores and 3 floors does not fit into 80 columns"
    for words in ("accuracy", "floor:", "frequent", "262,144"):
        assert words in first
    assert "forced" not in first
    for piece in others:
        assert {"length", "question", "262,144", "qa10"} <= set(piece.split())
    header = printed(task_table(BABILONG), 200).splitlines()[3]
    assert header.index("frequent") < header.index("valid") < header.index("words")


def test_a_parameter_that_no_cell_sets_is_no_column_and_zero_is_one():
    def header(*distances):
        cells = [cell("recall", 0.5, length=256, facts=2, distance=distance) for distance in distances]
        return printed(task_table(evaluation("recall", cells)), 120)

    assert "distance" not in header(None, None)
    assert "distance" in header(0)
    assert "distance" in header(None, 30)


def test_a_score_above_every_floor_is_bold_and_no_other():
    record = evaluation("recall", [cell("recall", mean, length=256, facts=2) for mean in (0.29, 0.31)])  # floor 0.2
    console = Console(width=120, force_terminal=True, color_system="standard")
    with console.capture() as captured:
        console.print(task_table(record))
    text = captured.get()
    assert "\x1b[1m0.31 [0.21,0.41]" in text
    assert "\x1b[1m0.29 [0.19,0.39]" not in text


@pytest.mark.parametrize(
    ("score", "words"),
    [
        (Score(mean=0.0, lower=0.0, upper=0.56), ("0.00", "[0.00,0.56]")),
        (Score(mean=0.0312, lower=0.0264, upper=0.0361), ("0.031", "[0.026,0.036]")),
        (Score(mean=2.5, lower=float("nan"), upper=float("nan")), ("2.50", "")),
    ],
)
def test_a_narrow_interval_is_no_point_and_one_example_has_none(score, words):
    assert score_words(score) == words


def test_the_notes_stand_below():
    assert task_lines(BABILONG)[1:] == tuple(f"length {n}, question qa1: {NOTE}." for n in ("0", "262,144"))
    assert len(task_lines(RECALL)) == 1
    assert "20 examples a cell (seed 0); length: tokens of prompt and answer; intervals 95%" in task_lines(PASSKEY)[0]


def sweep(arms: int) -> Sweep:
    cells = tuple({"length": n, "facts": f, "distance": None} for n in (256, 262_144) for f in (2, 16))
    mean = np.array([0.13, 0.24, 0.35, 0.46])
    made = SweepArm(
        label="", words="", scores={"accuracy": np.tile(mean, (1, 2, 1))}, losses=np.zeros((1, 2)),
        learned=np.ones((1, 2), bool), chosen=0, share=(1.0, 0.34, 1.0), mean=mean, lower=mean - 0.1, upper=mean + 0.1,
    )  # fmt: skip
    labels = ("state_passing", "zero", "longer_context", "fitted_noise", "random_noise")[:arms]
    return Sweep(
        task="recall", measures=("accuracy",), length_is="tokens", cells=cells, floors=({"chance": 0.1875},) * 4,
        notes=((),) * 4, in_range=(0,), learns="", learning_rates=(1e-3,), seeds=(0, 1),
        arms=tuple(replace(made, label=label) for label in labels), contrasts=(), context=64, architecture="gla",
        parameters=7, state="", state_elements=0, examples=2, confidence=0.95, interval="", settings={}, sentence="",
        seconds={},
    )  # fmt: skip


@pytest.mark.parametrize("arms", [1, 5])
def test_the_tables_of_a_sweep_fit_and_cut_no_number(arms):
    record = sweep(arms)
    for table, numbers in (
        (sweep_table(record), ["0.13 [0.03,0.23]", "0.46 [0.36,0.56]", "1.00 [0.34,1.00]", "0.001"]),
        (other_table(record, "accuracy"), ["0.13", "0.46"]),
    ):
        text = printed(table, 80)
        assert max(map(len, text.splitlines())) <= 80
        assert "…" not in text
        assert "262144" in text
        for number in numbers:
            assert text.count(number) == arms
    assert printed(sweep_table(record), 80).count("0.19") >= 4  # the floor stands in every piece
