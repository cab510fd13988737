import re

import numpy as np
import pytest
from rich.console import Console

from everlong.reports.tables import diagnosis_lines, diagnosis_table, repair_lines, repair_table
from tests.reports.synthetic import make_diagnosis, make_repair


def printed(table, width: int = 100) -> str:
    console = Console(width=width, no_color=True, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_repair_table_fits_and_cuts_no_number(width):
    repair = make_repair()
    text = printed(repair_table(repair), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for row in repair.rows:
        for excess in (row.own, row.own_best):
            for mean, lower, upper in zip(excess.mean, excess.lower, excess.upper, strict=True):
                assert f"{mean:+.3f}" in text
                assert f"[{lower:+.3f},{upper:+.3f}]" in text


def test_the_repair_table_names_every_model_and_says_what_it_means_without_colour():
    text = flat(printed(repair_table(make_repair()), 120))
    for words in (
        *("Before repair", "Zero start (control)", "State passing", "reading on harms", "no better than restarting"),
        *("undecided", "breaks at 512", "perplexity in range", "tolerance of 0.02", "32 documents", "last 64 tokens"),
        *("64-256", "4,096-16,384", "headroom"),
    ):
        assert words in text


def test_the_control_is_shown_only_against_a_model_that_is_not_its_own_control():
    text = printed(repair_table(make_repair(("before", "zero"))), 120).split("excess:")[0]
    assert "own window" in text
    assert "control best" not in text


def test_means_are_coloured():
    console = Console(width=120, force_terminal=True, color_system="standard")
    with console.capture() as captured:
        console.print(repair_table(make_repair()))
    assert "\x1b[1;31mreading on harms" in captured.get()


def test_lines_give_the_sentence_first_and_every_warning():
    repair = make_repair()
    assert repair_lines(repair) == (repair.sentence, f"Warning: {repair.warnings[0]}")
    assert "Definition 3.2" in diagnosis_lines(make_diagnosis())[1]


@pytest.mark.parametrize("width", [80, 120])
def test_the_diagnosis_table_has_a_row_a_bucket_and_takes_names_for_text(width):
    text = printed(diagnosis_table(make_diagnosis(model="[red]x[/nothing]")), width)
    assert max(map(len, text.splitlines())) <= width
    assert "[red]x[/nothing]" in text
    assert "…" not in text
    for words in (
        "documents carried",
        "reading on",
        "8,192-16,384",
        "harms",
        "[0.000,0.000]",
        "buckets; 32 documents.",
        "shown the last 64 tokens at most (best window: of any width measured, in brackets). Harms: the whole",
    ):
        assert words in flat(text)
    assert text.count("tolerance") == 3  # twice as a meaning, in whole, and once below


def test_buckets_that_no_document_reaches_are_said_to_be_empty():
    diagnosis = make_diagnosis()
    diagnosis.targets[:, -1] = 0
    for losses in diagnosis.losses.values():
        losses[:, -1] = np.nan
    assert "n/a" in printed(diagnosis_table(diagnosis))
