"""Datasets of Hugging Face, on small local ones: by configuration and split, mapped and streamed, strict like files."""

import json
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest

from everlong.data import _hub
from everlong.data.config import DataConfig
from everlong.data.inputs import find_inputs, read_documents
from everlong.data.opening import open_corpus
from everlong.data.tokenizers import ByteTokenizer
from everlong.errors import EverlongError
from everlong.progress import Progress

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


class Hub:
    """In the place of Hugging Face's hub: one dataset, whose newest commit a test may change."""

    def __init__(self):
        self.commits = {"a" * 40: ["first", "second", "third"], "b" * 40: ["first", "otherwise", "third", "fourth"]}
        self.newest = "a" * 40
        self.asked: list[dict] = []

    def load_dataset(self, place: str, configuration: str | None, *, split: str, streaming: bool, **options):
        """As of the library: a Dataset or an IterableDataset, of a commit, else of the newest."""
        self.asked.append({"id": place, "configuration": configuration, "split": split, "streaming": streaming})
        self.asked[-1]["revision"] = options.pop("revision")
        assert options == {"cache_dir": None}
        texts = self.commits[self.asked[-1]["revision"] or self.newest]
        rows = datasets.Dataset.from_list([{"text": text, "n": number} for number, text in enumerate(texts)])
        return rows.to_iterable_dataset() if streaming else rows

    def dataset_info(self, place: str):
        """As of the library's HfApi."""
        return SimpleNamespace(id=place, sha=self.newest)


@pytest.fixture
def hub(monkeypatch) -> Hub:
    made = Hub()
    monkeypatch.setattr(_hub, "is_reachable", lambda: True)
    monkeypatch.setattr(datasets, "load_dataset", made.load_dataset)
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: made)
    return made


@both_ways
def test_a_dataset_of_the_hub_is_read_by_id_configuration_and_split(hub, stream):
    found = read_documents(["owner/name:20231101.en:validation"], stream=stream)
    assert [document.text for document in found] == ["first", "second", "third"]
    assert [document.name for document in found][-1] == "owner/name:20231101.en:validation:2"
    assert hub.asked == [
        {
            "id": "owner/name",
            "configuration": "20231101.en",
            "split": "validation",
            "streaming": stream,
            "revision": "a" * 40 if stream else None,
        }
    ]
    assert refused("owner/name", text_column="body", stream=stream).startswith(
        "dataset owner/name::train has no column 'body'; it has ['n', 'text']"
    )
    assert hub.asked[-1]["configuration"] is None


def test_the_first_rows_of_a_stream_of_the_hub_are_taken_here(hub):
    assert texts("owner/name:en:train[:2]", stream=True) == ["first", "second"]
    assert hub.asked[-1]["split"] == "train"
    assert texts("owner/name:en:train[:2]") == ["first", "second", "third"]  # the library's own affair
    assert hub.asked[-1]["split"] == "train[:2]"


@both_ways
def test_a_new_commit_of_a_dataset_has_another_digest(hub, stream):
    def digest() -> str:
        return find_inputs(["owner/name"], stream=stream)[0].digest("text", lambda _: None)

    before = digest()
    assert before == digest()
    hub.newest = "b" * 40
    assert digest() != before


def test_a_stream_is_of_the_commit_that_its_digest_names_though_another_came_meanwhile(hub):
    (stream,) = find_inputs(["owner/name"], stream=True)
    assert stream.digest("text", lambda _: None) == "a" * 40
    hub.newest = "b" * 40
    assert [document.text for document in stream.documents("text", lambda _: None)] == ["first", "second", "third"]


@both_ways
def test_a_dataset_of_the_hub_becomes_tokens(hub, tmp_path, stream):
    config = DataConfig(stream=stream, token_cache=str(tmp_path / "tokens"))
    corpus = open_corpus(find_inputs(["owner/name"], stream=stream), ByteTokenizer(), config, Progress())
    assert corpus.sizes.tolist() == [5, 6, 5]
    hub.newest = "b" * 40
    again = open_corpus(find_inputs(["owner/name"], stream=stream), ByteTokenizer(), config, Progress())
    assert again.sizes.tolist() == [5, 9, 5, 6]
    assert again.identity != corpus.identity


def test_what_the_hub_does_not_give_is_named_with_its_reason(hub, monkeypatch):
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
