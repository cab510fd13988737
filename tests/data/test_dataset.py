"""Datasets of Hugging Face, on small local ones: by configuration and split, mapped and streamed, strict like files."""

import json
from pathlib import Path

import pytest

from everlong.data import _hub
from everlong.data.inputs import find_inputs, read_documents
from everlong.errors import EverlongError

datasets = pytest.importorskip("datasets")

CARD = """---
configs:
- config_name: en
  data_files:
  - split: train
    path: en/train.jsonl
  - split: validation
    path: en/validation.jsonl
- config_name: de
  data_files: de/*.jsonl
---
A card that is no document.
"""


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset's repository ``repo`` in the working folder, as the hub would hold it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "prepared")
    write("repo/en/train.jsonl", [{"text": f"row {number}", "n": number} for number in range(5)])
    write("repo/en/validation.jsonl", [{"text": f"other {number}", "n": number} for number in range(3)])
    write("repo/de/only.jsonl", [{"text": "Zeile", "n": 0}])
    Path("repo/README.md").write_text(CARD)
    return tmp_path / "repo"


def write(name: str, rows: list[dict]) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))


def texts(*patterns: str, **options) -> list[str]:
    return [document.text for document in read_documents(patterns, **options)]


def refused(*patterns: str, **options) -> str:
    with pytest.raises(EverlongError) as caught:
        read_documents(patterns, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


both_ways = pytest.mark.parametrize("stream", [False, True])


@both_ways
def test_configuration_and_split_are_chosen_after_colons(stream):
    assert texts("repo:en", stream=stream) == [f"row {number}" for number in range(5)]
    assert texts("repo:en:validation", stream=stream) == ["other 0", "other 1", "other 2"]
    assert texts("repo:de", stream=stream) == ["Zeile"]
    names = [document.name for document in read_documents(["repo:en:validation"], stream=stream)]
    assert names == ["repo:en:validation:0", "repo:en:validation:1", "repo:en:validation:2"]


@both_ways
def test_the_first_rows_of_a_split_can_be_asked_for(stream):
    assert texts("repo:en:train[:2]", stream=stream) == ["row 0", "row 1"]


@both_ways
def test_a_missing_column_configuration_or_split_is_named_with_those_there(stream):
    message = refused("repo:en", text_column="body", stream=stream)
    assert message == "dataset repo:en:train has no column 'body'; it has ['n', 'text']: choose one with --text-column"
    message = refused("repo:fr", stream=stream)
    assert message.startswith(
        "dataset repo:fr:train cannot be loaded: BuilderConfig 'fr' not found. Available: ['en', "
    )
    message = refused("repo:en:test", stream=stream)
    assert message.startswith("dataset repo:en:test cannot be loaded: ")
    assert "['train', 'validation']" in message


@both_ways
def test_a_null_text_is_named_with_its_row(stream):
    write("repo/de/only.jsonl", [{"text": "a"}, {"text": None}])
    assert refused("repo:de", stream=stream).startswith("dataset repo:de:train row 1: column 'text' is null, not text")


@both_ways
def test_a_file_that_its_loader_cannot_read_is_an_error(stream):
    with Path("repo/de/only.jsonl").open("a") as file:
        file.write('{"text": "torn')
    assert refused("repo:de", stream=stream).startswith("dataset repo:de:train cannot be ")


@both_ways
def test_a_folder_whose_files_changed_is_read_anew(stream):
    assert texts("repo:de", stream=stream) == ["Zeile"]
    before = find_inputs(["repo:de"], stream=stream)[0].digest("text", lambda _: None)
    write("repo/de/only.jsonl", [{"text": "neu", "n": 0}])
    assert texts("repo:de", stream=stream) == ["neu"]
    assert find_inputs(["repo:de"], stream=stream)[0].digest("text", lambda _: None) != before


def test_a_repository_of_plain_files_has_one_configuration():
    write("plain/data.jsonl", [{"text": "x"}])
    assert texts("plain::train") == ["x"]
    assert texts("plain") == ["x"]  # as a folder of files


def test_rows_are_counted_and_two_names_of_one_dataset_are_read_once(repository):
    (each,) = find_inputs(["repo:en", f"{repository}:en:train"])
    done: list[int] = []
    list(each.documents("text", done.append))
    assert sum(done) == each.size == 5
    assert find_inputs(["repo:en"], stream=True)[0].size is None


def test_a_dataset_of_the_hub_is_asked_for_by_id_configuration_and_split(monkeypatch):
    monkeypatch.setattr(_hub, "is_reachable", lambda: True)
    asked: list[tuple] = []

    def load(*arguments, **options):
        asked.append((*arguments, options["split"], options["streaming"]))
        raise ConnectionError("no network here\nand more")

    monkeypatch.setattr(datasets, "load_dataset", load)
    message = refused("owner/name:20231101.en:validation[:5]", stream=True)
    assert message.startswith(
        "dataset owner/name:20231101.en:validation[:5] cannot be loaded "
        "(no file or folder here is named 'owner/name'): no network here; give --data FILES"
    )
    refused("owner/name")
    assert asked == [("owner/name", "20231101.en", "validation", True), ("owner/name", None, "train", False)]
