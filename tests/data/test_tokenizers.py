"""Bytes and Hugging Face tokenizers behind one protocol, and which of them is taken."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everlong.data import _hub
from everlong.data import tokenizers as ours
from everlong.data.tokenizers import ByteTokenizer, HuggingFaceTokenizer, Tokenizer, load_tokenizer
from everlong.errors import EverlongError

BOOKS = Path(__file__).parents[3] / "shared" / "tokenizers" / "bpe4096_books.json"


def tiny_tokenizer() -> str:
    """A word-level tokenizer as JSON that asks for truncation, padding and a special token at the end."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "one": 1, "two": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens(["[END]"])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A [END]", special_tokens=[("[END]", 3)])
    tokenizer.enable_truncation(max_length=4)
    tokenizer.enable_padding(length=8)
    return tokenizer.to_str()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "tokenizer.json").write_text(tiny_tokenizer())
    (folder / "tokenizer_config.json").write_text('{"clean_up": false}')
    return folder


@settings(deadline=None, derandomize=True)
@given(st.text())
def test_bytes_give_back_any_text(text):
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    assert ids.dtype == np.int32
    assert ids.tolist() == list(text.encode())
    assert tokenizer.decode(ids) == text


def test_half_a_character_is_shown_as_the_replacement_character():
    assert ByteTokenizer().decode([0xC3, 65]) == "\ufffdA"


def test_both_kinds_keep_the_protocol(folder):
    assert isinstance(ByteTokenizer(), Tokenizer)
    assert isinstance(load_tokenizer(str(folder)), Tokenizer)


def test_nothing_is_cut_padded_or_added_whatever_the_file_asks_for(folder):
    tokenizer = load_tokenizer(str(folder))
    assert tokenizer.encode("one two " * 5).tolist() == [1, 2] * 5
    assert tokenizer.encode("one").tolist() == [1]
    assert tokenizer.decode(np.array([1, 3])) == "one [END]"


def test_the_vocabulary_reaches_to_the_largest_id(folder):
    assert load_tokenizer(str(folder)).vocab_size == 4


def test_a_folder_s_own_files_are_saved_as_they_were(folder, tmp_path):
    tokenizer = load_tokenizer(None, model_folder=folder)
    copy = tmp_path / "copy"
    copy.mkdir()
    tokenizer.save(copy)
    tokenizer.save(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (copy / name).read_bytes() == (folder / name).read_bytes()
    assert load_tokenizer(None, model_folder=copy).encode("two one").tolist() == [2, 1]


def test_a_tokenizer_file_may_have_any_name_and_is_saved_under_the_usual_one(folder, tmp_path):
    path = (folder / "tokenizer.json").rename(tmp_path / "mine.json")
    tokenizer = load_tokenizer(str(path))
    assert tokenizer.name == str(path)
    tokenizer.save(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == path.read_bytes()


def test_what_is_asked_for_goes_before_the_folder_and_the_folder_before_the_configuration(folder, tmp_path):
    assert load_tokenizer("bytes", model_folder=folder, configured=str(folder)).name == "bytes"
    assert load_tokenizer(None, model_folder=folder, configured="bytes").name == str(folder)
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_text("{}")
    assert load_tokenizer(None, model_folder=bare, configured="bytes").name == "bytes"
    assert load_tokenizer(None, configured="bytes").name == "bytes"


def test_bytes_leave_no_files_that_would_go_before_the_configuration(tmp_path):
    ByteTokenizer().save(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_only_owner_and_name_without_such_a_path_is_a_hub_id(folder, tmp_path, monkeypatch):
    asked = []

    def hub(source: str) -> HuggingFaceTokenizer:
        asked.append(source)
        return HuggingFaceTokenizer(source, {"tokenizer.json": tiny_tokenizer().encode()})

    monkeypatch.setattr(ours, "_from_transformers", hub)
    monkeypatch.chdir(tmp_path)
    assert load_tokenizer("owner/some-name.1").name == "owner/some-name.1"
    (tmp_path / "owner").mkdir()
    folder.rename(tmp_path / "owner" / "name")
    assert load_tokenizer("owner/name").encode("two").tolist() == [2]
    for request in ("gpt2", "a/b/c", "./gone", "/gone/away", "../gone"):
        with pytest.raises(EverlongError, match=r"^no tokenizer at '.*': give --tokenizer bytes\|PATH\|ID"):
            load_tokenizer(request)
    assert asked == ["owner/some-name.1"]


def test_files_without_tokenizer_json_are_converted_by_transformers(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2Tokenizer"}')
    (tmp_path / "vocab.json").write_text(json.dumps({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}))
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    tokenizer = load_tokenizer(None, model_folder=tmp_path)
    assert tokenizer.encode("abba").tolist() == [2, 1, 0]
    assert tokenizer.decode([2, 1, 0]) == "abba"
    copy = tmp_path / "copy"
    copy.mkdir()
    tokenizer.save(copy)
    assert load_tokenizer(str(copy)).encode("abba").tolist() == [2, 1, 0]


def test_a_hub_that_fails_is_one_line(monkeypatch):
    from transformers import AutoTokenizer

    def fail(*_: object, **__: object) -> None:
        raise OSError("cannot connect\nand a long story")

    monkeypatch.setattr(_hub, "is_reachable", lambda: True)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", fail)
    with pytest.raises(
        EverlongError, match=r"^transformers cannot load the tokenizer 'o/n': cannot connect; --tok[^\n]*$"
    ):
        load_tokenizer("o/n")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"tokenizer.json": "{"}, r"^'model' cannot be read as a tokenizer: .*"),
        ({"tokenizer.json": "{}"}, r"^'model' cannot be read as a tokenizer: .*Model missing"),
        (
            {"readme.md": ""},
            r"^no tokenizer files in model \(such as tokenizer.json\): give --tokenizer bytes\|PATH\|ID$",
        ),
        ({"tokenizer_config.json": '{"tokenizer_class": "GPT2Tokenizer"}'}, r"^tokenizer 'model' has no vocabulary"),
        ({"tokenizer_config.json": '{"tokenizer_class": "ByT5Tokenizer"}'}, r"^tokenizer 'model' has no fast version"),
        ({"tokenizer_config.json": "{"}, r"^transformers cannot load the tokenizer 'model': "),
    ],
)
def test_files_that_are_no_tokenizer_are_named_in_one_line(tmp_path, monkeypatch, files, message):
    monkeypatch.chdir(tmp_path)
    Path("model").mkdir()
    for name, content in files.items():
        Path("model", name).write_text(content)
    with pytest.raises(EverlongError, match=message) as caught:
        load_tokenizer("model")
    assert "\n" not in str(caught.value)


def test_without_any_hint_the_flag_is_named(tmp_path):
    with pytest.raises(
        EverlongError, match=r"^no tokenizer: no tokenizer files in .*; say which with --tokenizer bytes\|"
    ):
        load_tokenizer(None, model_folder=tmp_path)
    with pytest.raises(
        EverlongError, match=r"^no tokenizer: no model folder to look in, and no configuration names one"
    ):
        load_tokenizer(None)


@pytest.mark.skipif(not BOOKS.is_file(), reason=f"needs {BOOKS}")
def test_a_real_bpe_tokenizer_reads_and_gives_back_english():
    tokenizer = load_tokenizer(str(BOOKS))
    text = "Call me Ishmael. Some years ago, never mind how long precisely.\n"
    ids = tokenizer.encode(text)
    assert tokenizer.vocab_size == 4096
    assert ids.dtype == np.int32
    assert 0 < len(ids) < len(text) / 2
    assert tokenizer.decode(ids) == text
