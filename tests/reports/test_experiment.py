"""The table over bases, in the terminal and on the page."""

import re

from everlong.reports.experiment import experiment_lines, experiment_table
from everlong.reports.page import write_report
from everlong.runs import Run
from tests.diagnostics.test_over_bases import EXCESSES, experiment
from tests.reports.test_tables import flat, printed


def test_the_table_shows_every_arm_with_its_interval_and_counts_and_cuts_nothing():
    record = experiment(EXCESSES)
    for width in (80, 120):
        text = printed(experiment_table(record), width)
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= width
    words = flat(printed(experiment_table(record), 120))
    for part in (
        *("Before repair", "Zero start (control)", "State passing", "+0.250", "2 of 3", "over control", "3 bases"),
        *("256-1,024", "nine tenths", "bases are the replicates", "2 seeds"),
    ):
        assert part in words, part
    assert experiment_lines(record) == (record.sentence,)


def test_the_page_of_an_experiment_has_the_table_the_pairs_the_figure_and_the_repairs(tmp_path):
    with Run.create(tmp_path / "run", "repair", {"bases": ["5"]}) as run:
        assert "This run is unfinished" in write_report(run).read_text()
        run.save("experiment", experiment(EXCESSES))
        page = re.sub(r"\s+", " ", write_report(run).read_text())
    assert "This run is unfinished" not in page
    for part in ("What each arm does, over the bases", "Zero start (control) minus State passing", "a/report.html"):
        assert part in page
    assert (tmp_path / "run" / "figures" / "excess-over-bases.csv").is_file()
