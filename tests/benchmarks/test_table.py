"""A row states its target, is refused where its contract fails, and says why where it cannot be measured."""

import pytest

from benchmarks import table
from benchmarks.contracts import ROOT, SUITES, Refused, run_suite
from benchmarks.measure import Measurement, NotAvailable, Spread
from benchmarks.settings import Settings
from benchmarks.table import ROWS, Row, Wanted, as_markdown, notes, select

ROW = Row(
    name="some-row",
    work="a step",
    against="a peer",
    wanted=Wanted(sense="at least", bound=2.0),
    contracts=("mamba2",),
    measure="training:bf16_against_fp32",
)
FOUND = Measurement(figure=Spread(values=(3.0, 1.0, 2.5)), seconds={"ours": (1.0,) * 3}, note="a note", of_fastest=2.0)


def run(monkeypatch, measure, contract=lambda path: f"{path}: 7 passed"):
    monkeypatch.setattr(table, "require", contract)
    monkeypatch.setattr("benchmarks.rows.training.bf16_against_fp32", measure)
    return ROW.run(Settings())


def test_a_row_whose_contract_fails_is_not_even_measured(monkeypatch):
    def contract(path):
        raise Refused("1 failed")

    line = run(monkeypatch, lambda settings: pytest.fail("measured"), contract)
    assert line.outcome == "refused"
    assert "1 failed" in line.as_json()["reason"]
    assert "figure" not in line.as_json()
    assert "| - | - | - | refused |" in as_markdown([line])


def test_a_row_that_cannot_be_measured_says_why(monkeypatch):
    def measure(settings):
        raise NotAvailable("no compiler")

    line = run(monkeypatch, measure)
    assert (line.outcome, notes([line])) == ("not available", ["some-row: no compiler"])


def test_a_row_that_fails_leaves_the_others_their_figures(monkeypatch):
    def measure(settings):
        raise RuntimeError("torn")

    line = run(monkeypatch, measure)
    assert (line.outcome, line.reason) == ("failed", "RuntimeError('torn')")


def test_the_median_is_held_against_the_target(monkeypatch):
    line = run(monkeypatch, lambda settings: FOUND)
    assert line.outcome == "reached"
    kept = line.as_json()
    assert kept["figure"] == {"median": 2.5, "low": 1.0, "high": 3.0, "values": (3.0, 1.0, 2.5), "of_fastest": 2.0}
    assert kept["contracts"] == ("mamba2: 7 passed",)
    assert "| some-row | a step | a peer | >= 2x | 2.5x | 1 - 3 | 2x | reached |" in as_markdown([line])
    assert not Wanted(sense="at most", bound=2.0).met_by(2.5)


def test_a_suite_that_fails_or_runs_nothing_refuses_and_one_that_passes_says_how_much(tmp_path):
    suite = tmp_path / "test_suite.py"
    suite.write_text("def test_good():\n    pass\n\n\ndef test_bad():\n    assert False\n")
    assert run_suite([str(suite)], "good").endswith("1 passed")
    with pytest.raises(Refused, match="1 failed"):
        run_suite([str(suite)], "bad")
    with pytest.raises(Refused, match="deselected"):
        run_suite([str(suite)], "absent")


def test_rows_have_names_of_their_own_contracts_that_exist_and_are_chosen_by_pattern():
    assert all((ROOT / file).is_file() for files, _ in SUITES.values() for file in files)
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert all(row.contracts and set(row.contracts) <= SUITES.keys() for row in ROWS)
    assert [row.name for row in select(("op-s*",))] == ["op-scalar", "op-scan"]
    assert select(()) == ROWS
    with pytest.raises(ValueError, match="--only nothing names no row; known: train-"):
        select(("nothing",))
