import html
import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from everlong.errors import EverlongError
from everlong.reports.page import write_report
from everlong.runs import Run
from tests.reports.synthetic import DOCUMENTS, make_diagnosis, make_repair, make_run

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7 }}-->"


class Page(HTMLParser):
    """What a browser would make of the page: elements, attributes, text, and whether it is nested well."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "link", "img"):
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def has(self, words: str) -> bool:
        return words in re.sub(r"\s+", " ", self.text)


def report(folder, verb="repair", records=None) -> Page:
    with make_run(folder / "run", verb, records) as run:
        return Page(write_report(run).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(finished):
    return Page((finished / "report.html").read_text(encoding="utf-8"))


def test_the_verdict_stands_at_the_top(page, finished):
    text = (finished / "report.html").read_text(encoding="utf-8")
    headline = re.search(r"<h1>(.*?)</h1>", text, re.DOTALL)
    assert headline is not None
    assert headline.group(1).strip() == make_repair().sentence
    assert text.index("<h1>") < text.index("<table")


def test_the_page_says_what_was_run_on_what_how_long_and_how_it_was_decided(page):
    for words in (
        *("Before repair", "Zero start (control)", "State passing", "reading on harms", "no better than restarting"),
        *("Tolerance: 0.02", "95%", "max-t", "sha256:5f0c19f0b7a4d1e2", "Lib/module_07.py", "backend numba"),
        *("together", "3 min", "restart", "Definition 3.2", "not set", "reset probability 0.02", "arXiv:2507.02782"),
        *("What this does not show", "headroom", "tokens read", "packages.numpy"),
    ):
        assert page.has(words), words
    assert not page.has("unfinished")


def test_the_page_is_whole_in_itself(page):
    for tag, attributes in page.elements:
        assert tag not in ("script", "link", "iframe", "object", "embed", "img")
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href"):
                allowed = ("#", "data:text/csv") if tag != "a" else ("data:text/csv", "https://arxiv.org/", "#")
                assert (value or "").startswith(allowed), (tag, name, value)


def test_identities_are_unique_and_every_figure_is_drawn(page):
    identities = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(identities) == len(set(identities))
    assert sum(tag == "svg" for tag, _ in page.elements) == 4


def test_what_comes_from_model_and_data_is_escaped(tmp_path):
    diagnosis = make_diagnosis(model=HOSTILE, documents=(HOSTILE,) * DOCUMENTS)
    verdict = replace(diagnosis.verdict, sentence=HOSTILE, definition_3_2=HOSTILE)
    repair = make_repair()
    rows = (replace(repair.rows[0], label=HOSTILE, verdict=HOSTILE), *repair.rows[1:])
    config = {"model": HOSTILE, "nested": {HOSTILE: [HOSTILE]}}
    with Run.create(tmp_path / "run", "repair", config) as run:
        run.save("diagnosis-before", replace(diagnosis, verdict=verdict, data_fingerprint=HOSTILE, backend=HOSTILE))
        run.save("diagnosis-odd", replace(diagnosis, label=HOSTILE))
        run.save("repair", replace(repair, rows=rows, sentence=HOSTILE, warnings=(HOSTILE,), proposal=HOSTILE))
        run.log({"phase": HOSTILE, "step": 0, "loss": 1.0})
        text = write_report(run).read_text(encoding="utf-8")
    page = Page(text)
    assert not {"script", "img"} & {tag for tag, _ in page.elements}
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert "{{ 7*7 }}" in page.text


@pytest.mark.parametrize(
    ("verb", "records", "words", "finished"),
    [
        ("repair", (), "Nothing is measured yet", False),
        ("repair", ("diagnosis-before",), "Before repair: The model breaks at 512 tokens.", False),
        ("repair", ("diagnosis-before", "training-zero", "training-state_passing"), "training: State passing", False),
        ("diagnose", ("diagnosis-before",), "The model breaks at 512 tokens.", False),
        ("diagnose", ("diagnosis-before", "diagnosis-state_passing"), "undecided", False),
        ("train", ("training-zero",), "the loss went from 1.470 to 1.440", True),
        ("train", ("training-zero", "diagnosis-zero"), "breaks at 512", True),
        ("train", (), "Nothing is measured yet", False),
        ("evaluate", (), "Nothing is measured yet", False),
        ("doctor", ("doctor",), "tiny: Nothing is wrong: all 2 checks are within their bounds.", True),
    ],
)
def test_a_run_of_any_verb_has_a_page_that_says_whether_it_is_finished(tmp_path, verb, records, words, finished):
    page = report(tmp_path, verb, records)
    assert page.has(words)
    assert page.has("This run is unfinished") is not finished
    assert page.has(f"everlong {verb} --resume") is not finished


def test_a_doctor_that_was_stopped_is_not_said_to_go_on(tmp_path):
    page = report(tmp_path, "doctor", ())
    assert page.has("This run is unfinished")
    assert not page.has("--resume")


def test_the_page_of_a_doctor_has_every_check_and_where_each_fact_was_read(tmp_path):
    page = report(tmp_path, "doctor", ("doctor",))
    for words in (
        *(
            "tiny: gla, 7 parameters, everlong format.",
            "2 rows of 131 random tokens (seed 0)",
            "any split gives the whole",
        ),
        *("5.6 eps", "1000 eps", "5 splits", "d_model", "model.d_model", "what it has learned"),
    ):
        assert page.has(words), words


def test_the_page_of_a_training_says_what_was_trained_and_nothing_of_documents_or_repairs(tmp_path):
    page = report(tmp_path, "train", ("training-zero",))
    for words in (
        "Trained from scratch: mamba2, on stdlib; every row starts from zero; rows of 64 tokens, 100 steps",
        "The loss is that on the rows it was trained on",
    ):
        assert page.has(words), words
    for words in ("choice of documents", "by its repair", "one repair is one case"):
        assert not page.has(words), words


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["/a/bin/everlong", "repair", "--reach", "9", "--output", "my run"], "everlong repair --reach 9"),
        (["/a/everlong/__main__.py", "repair", "a b", "--output=run"], "everlong repair 'a b'"),
        (["/a/src/everlong/recipes/recall.py", "--seeds", "2"], "python -m everlong.recipes.recall --seeds 2"),
        (["/b/pytest/__main__.py", "-q"], "python /b/pytest/__main__.py -q"),
        (["/a/bin/everlong", "repair", "--resume", "run"], None),
        ([], None),
    ],
)
def test_the_page_gives_the_commands_that_make_the_run_and_the_page_again(tmp_path, command, shown):
    with make_run(tmp_path / "run", records=()) as run:
        path = run.path / "environment.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "command": command}))
        text = write_report(run).read_text(encoding="utf-8")
    blocks = [html.unescape(block) for block in re.findall(r"<pre>(.*?)</pre>", text, re.DOTALL)]
    assert blocks[:-1] == [*([shown] if shown else []), f"everlong report {tmp_path / 'run'}"]


def test_torn_metrics_and_missing_files_do_no_harm(tmp_path):
    with make_run(tmp_path / "run", records=("training-state_passing",)) as run:
        (run.path / "environment.json").unlink()
        with (run.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"phase": "training-zero", "st')
        assert Page(write_report(run).read_text(encoding="utf-8")).has("State passing")


def test_a_record_that_cannot_be_read_is_named(tmp_path):
    with make_run(tmp_path / "run") as run:
        (run.path / "records" / "repair.json").write_text("{", encoding="utf-8")
        with pytest.raises(EverlongError, match=r"repair\.json"):
            write_report(run)


def test_remaking_the_report_gives_the_same_bytes_and_needs_no_torch(finished):
    before = {path: path.read_bytes() for path in [finished / "report.html", *(finished / "figures").iterdir()]}
    code = (
        "import sys; from everlong.runs import Run; from everlong.reports.page import write_report\n"
        "from everlong.reports import tables\n"
        f"run = Run.open({str(finished)!r}); write_report(run); run.close()\n"
        "sys.exit('torch' in sys.modules or 'matplotlib.pyplot' in sys.modules)"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)
    for path, content in before.items():
        assert path.read_bytes() == content, path.name
