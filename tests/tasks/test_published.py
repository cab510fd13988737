"""BABILong as published: a local folder laid out as RMT-team/babilong is, read by the library ``datasets``."""

import json
import re

import pytest

from everlong.data import dataset
from everlong.data.tokenizers import ByteTokenizer
from everlong.errors import EverlongError
from everlong.tasks._cache import example_set
from everlong.tasks._published import Published
from everlong.tasks.babilong import BABILong
from everlong.tasks.config import BABILongConfig

SAMPLES = {
    ("4k", "qa1"): [(f" Book {n}. Mary went to the office. Night. ", "Where is Mary?", "office") for n in range(3)],
    ("0k", "qa1"): [("Mary went to the garden.", "Where is Mary?", "garden")],
}


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    folder = tmp_path_factory.mktemp("babilong")
    configurations = []
    for (length, name), samples in SAMPLES.items():
        path = folder / length / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        rows = [dict(zip(("input", "question", "target"), sample, strict=True)) for sample in samples]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        configurations.append(
            f"- config_name: {length}\n  data_files:\n  - split: {name}\n    path: {length}/{name}.jsonl\n"
        )
    (folder / "README.md").write_text(f"---\nconfigs:\n{''.join(configurations)}---\n", encoding="utf-8")
    return folder


def task_of(folder, **settings):
    return BABILong(BABILongConfig(babilong=str(folder), questions=("qa1",), **settings), ByteTokenizer())


def test_a_sample_is_asked_whole_and_in_the_order_of_the_set(published):
    task = task_of(published)
    cell = {"length": 4096, "question": "qa1"}
    examples = [task.example(cell, seed=0, index=index) for index in range(3)]
    texts = [ByteTokenizer().decode(example.prompt) for example in examples]
    assert texts == [f" Book {n}. Mary went to the office. Night.\nQuestion: Where is Mary?\nAnswer:" for n in range(3)]
    assert ByteTokenizer().decode(examples[0].answer) == " office."
    assert task.score(examples[0], examples[0].answer, examples[0].answer)["accuracy"] == 1.0
    assert task.floors(cell, examples) == {"most frequent": 1.0}
    assert "own" in task.notes(cell)[0]
    assert (
        ByteTokenizer()
        .decode(task_of(published, few_shot=True).example(cell, seed=0, index=0).prompt)
        .startswith("Facts about people")
    )


def test_each_cell_has_its_own_samples_and_its_own_place_in_the_cache(published, tmp_path):
    task = task_of(published)
    for length, answer in ((4096, "office"), (0, "garden")):
        (example,) = example_set(task, {"length": length, "question": "qa1"}, seed=0, count=1, folder=tmp_path)
        assert example.target == answer
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    ("length", "index", "words"),
    [
        (4096, 3, "has 3 samples of qa1 at 4,096 tokens: give --examples 3"),
        (300, 0, "--lengths 300 is no length of the published sets"),
        (2048, 0, re.escape("4k")),  # the library names those that there are
    ],
)
def test_what_is_not_there_is_named(published, length, index, words):
    with pytest.raises(EverlongError, match=words):
        task_of(published).example({"length": length, "question": "qa1"}, seed=0, index=index)


def test_training_needs_facts_and_books_for_its_exact_lengths(published):
    with pytest.raises(EverlongError, match="--babi DIR"):
        BABILong(BABILongConfig(babilong=str(published)), ByteTokenizer(), training=True)
    with pytest.raises(EverlongError, match="give no --babi"):
        BABILongConfig(babilong="RMT-team/babilong", babi="folder")


def test_an_id_of_the_hub_is_asked_for_by_configuration_and_split(monkeypatch):
    asked = []

    def rows(self, columns):
        asked.append((self.place, self.configuration, self.split, tuple(columns)))
        return iter([{"input": "A. ", "question": "Where is Mary?", "target": "office"}])

    monkeypatch.setattr(dataset.Dataset, "rows", rows)
    for length in (0, 4096, 1 << 20):
        Published("RMT-team/babilong").samples("qa3", length)
    columns = ("input", "question", "target")
    assert asked == [("RMT-team/babilong", name, "qa3", columns) for name in ("0k", "4k", "1M")]
