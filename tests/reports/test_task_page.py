"""The page of an evaluation: what was asked of which model, every number of the records, and whether all was asked."""

import re
from dataclasses import replace

import pytest

from everlong.reports.page import write_report
from everlong.runs import Run
from tests.reports.evaluated import BABILONG, COPYING, EVALUATIONS, NOTE, PASSKEY, RECALL, cell, evaluation
from tests.reports.test_page import HOSTILE, Page


def written(folder, records=EVALUATIONS, tasks=("passkey", "babilong", "copying", "recall"), cells=()) -> str:
    with Run.create(folder / "run", "evaluate", {"model": "tiny", "task": list(tasks)}) as run:
        for record in records:
            run.save(f"evaluation-{record.task}", record)
        for one in cells:
            run.save(f"cell-{one.task}-length={one.parameters['length']}", one)
        return write_report(run).read_text(encoding="utf-8")


def headline(text: str) -> str:
    found = re.search(r"<h1>(.*?)</h1>", text, re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return written(tmp_path_factory.mktemp("evaluation"))


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_the_headline_says_what_was_measured_on_which_model_and_what_came_out(text):
    """Floors are 0.2 at most and intervals 0.1 to either side."""
    assert headline(text) == (
        "tiny on passkey, babilong, copying and recall, 7 lengths from 0 to 262,144: above every floor, with the whole "
        "interval, passkey in 4 of 4 cells, the longest of 1,024; babilong in 12 of 20 cells, the longest of 262,144; "
        "copying in 1 of 2 cells, the longest of 50; recall in none of 8 cells."
    )
    assert "<title>Everlong evaluate: tiny</title>" in text


def test_the_facts_are_under_the_headline(page):
    for words in (
        "tiny: gla, 7 parameters, trained on 512 tokens; tokenizer bytes.",
        "20 examples a cell, seed 0, 3,400 tokens of prompts read from the zero state; backend chunked on cpu, float32",
        "Intervals: 95%, over the examples, a cell at a time; Wilson's where each score is right or wrong",
        "Length: letters of the string.",
        "Length: tokens of prompt and answer.",
        "wording",
        "evaluation of recall",
        "everlong report",
    ):
        assert page.has(words), words


@pytest.mark.parametrize("record", EVALUATIONS, ids=lambda record: record.task)
def test_the_table_of_a_task_has_every_score_interval_floor_and_note_in_the_row_of_its_cell(text, record):
    section = text.split('<section id="tasks">')[1].split("</section>")[0]
    table = section.split(f"<h3>{record.task}</h3>")[1].split("</table>")[0]
    head, body = table.split("<tbody>")
    headers = re.findall(r"<th [^>]*>(.*?)</th>", head)
    parameters = list(record.cells[0].parameters)
    measures = [name.replace("_", " ") for name in record.cells[0].scores]
    assert headers[: len(parameters)] == parameters
    assert set(headers[len(parameters) :]) - {"notes"} == {
        *measures, "against the floors", "floor: chance", "floor: most frequent", "floor: last value"
    }  # fmt: skip
    rows = body.split("<tr>")[1:]
    assert len(rows) == len(record.cells)
    for row, one in zip(rows, record.cells, strict=True):
        values = re.findall(r'<th scope="row">(.*?)</th>', row)
        assert values == [f"{v:,}" if isinstance(v, int) else str(v) for v in one.parameters.values()]
        found = dict(zip(headers[len(parameters) :], re.findall(r"<td.*?>(.*?)</td>", row, re.DOTALL), strict=True))
        for name, score in one.scores.items():
            shown = re.sub("<.*?>", "", found[name.replace("_", " ")])
            assert shown == f"{score.mean:.2f} [{score.lower:.2f},{score.upper:.2f}]"
        for name, floor in one.floors.items():
            assert found[f"floor: {name}"] == f"{floor:.2g}"
        above = one.scores[record.measures[0]].lower > 0.2
        below = one.scores[record.measures[0]].upper < 0.2
        assert ("▲ above" in found["against the floors"]) == above
        assert ("▼ below" in found["against the floors"]) == below
        assert found.get("notes", "") == (NOTE if one.notes else "")


def test_the_valid_label_rate_stands_beside_the_score_and_its_floors(text):
    table = text.split("<h3>babilong</h3>")[1].split("</table>")[0]
    headers = re.findall(r"<th scope=\"col\"[^>]*>(.*?)</th>", table)
    assert headers.index("valid") < headers.index("accuracy by words") < headers.index("forced accuracy")
    assert headers.index("valid") == headers.index("against the floors") + 1


def test_what_the_page_does_not_show_is_of_tasks(page):
    for words in ("Nothing is measured", "Loss is not a task", "choice of documents", "by its repair", "unfinished"):
        assert not page.has(words), words
    for words in (
        "choice of examples from these tasks",
        "Nothing beyond a length of 262,144 was asked.",
        "everlong diagnose does",
        "Only a score above its floors says anything.",
    ):
        assert page.has(words), words


def test_a_run_that_lacks_a_task_of_its_configuration_is_unfinished_and_says_what_is_there(tmp_path):
    page = Page(written(tmp_path, records=(PASSKEY, RECALL), cells=COPYING.cells))
    assert page.has("This run is unfinished")
    assert page.has("(evaluation: passkey, evaluation: recall, 2 cells of copying)")
    assert page.has("everlong evaluate --resume")
    assert page.has("tiny on passkey and recall")


def test_cells_of_no_finished_task_are_not_called_nothing(tmp_path):
    page = Page(written(tmp_path, records=(), cells=BABILONG.cells[:1]))
    assert page.has("No task of this run of everlong evaluate is finished yet.")
    assert page.has("(1 cell of babilong)")


def test_one_task_of_one_length_and_no_known_training_length(tmp_path):
    record = evaluation("passkey", [cell("passkey", 0.0, length=300, depth=0.5)], context=None)
    text = written(tmp_path, records=(record,), tasks=("passkey",))
    expected = "tiny on passkey, length 300: above every floor, with the whole interval, passkey in none of 1 cell."
    assert headline(text) == expected
    assert Page(text).has("training length not known")
    assert not Page(text).has("unfinished")


def test_what_comes_from_model_and_task_is_escaped(tmp_path):
    hostile = replace(
        BABILONG.cells[0], notes=(HOSTILE,), parameters={"length": 9, HOSTILE: HOSTILE}, floors={HOSTILE: 0.5}
    )
    record = replace(BABILONG, cells=(hostile,), model=HOSTILE, tokenizer=HOSTILE, settings={HOSTILE: HOSTILE})
    page = Page(written(tmp_path, records=(record,), tasks=("babilong",)))
    assert not {"script", "img"} & {tag for tag, _ in page.elements}
    assert "{{ 7*7 }}" in page.text


def test_tasks_stand_in_the_order_in_which_they_were_asked_for(tmp_path):
    text = written(tmp_path, tasks=("recall", "passkey"), records=(PASSKEY, RECALL))
    assert headline(text).startswith("tiny on recall and passkey")
    assert re.findall(r"<h3>(recall|passkey)</h3>", text) == ["recall", "passkey"]
