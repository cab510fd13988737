"""Files become documents in one order, and whatever cannot be read is named."""

import json
from pathlib import Path

import pytest

from everlong.data.inputs import read_documents
from everlong.errors import EverlongError


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def names(*patterns: str) -> list[str]:
    return [document.name for document in read_documents(patterns)]


def test_a_folder_is_walked_in_sorted_order_for_the_known_endings(here):
    write(
        {
            "books/b.md": "b",
            "books/a.txt": "a",
            "books/deep/er/c.py": "c",
            "books/image.png": b"\xff",
            "books/D.TXT": "d",
        }
    )
    assert names("books") == ["books/D.TXT", "books/a.txt", "books/b.md", "books/deep/er/c.py"]


def test_hidden_files_and_folders_and_caches_are_passed_over_in_a_folder(here):
    write({"books/a.txt": "a", "books/.git/b.txt": "b", "books/__pycache__/c.py": "c", "books/._a.txt": b"\xff\xfe"})
    assert names("books") == ["books/a.txt"]


def test_a_hidden_folder_is_read_when_it_is_named(here):
    write({".notes/a.txt": "a"})
    assert names(".notes") == [".notes/a.txt"]


def test_globs_reach_any_depth_and_an_existing_name_is_no_glob(here):
    write({"x/a.txt": "a", "x/y/b.txt": "b", "x/y/c.md": "c", "[v1].txt": "v"})
    assert names("x/**/*.txt") == ["x/a.txt", "x/y/b.txt"]
    assert names("[v1].txt") == ["[v1].txt"]


def test_a_glob_may_match_folders(here):
    write({"x/one/a.txt": "a", "x/two/b.txt": "b"})
    (here / "x" / "empty").mkdir()
    assert names("x/*") == ["x/one/a.txt", "x/two/b.txt"]


def test_patterns_keep_their_order_and_one_real_file_is_read_once(here):
    write({"a.txt": "a", "b.txt": "b"})
    (here / "link.txt").symlink_to(here / "a.txt")
    assert names("b.txt", "link.txt", "./a.txt", str(here), "*.txt") == ["b.txt", "a.txt"]


def test_a_link_to_the_folder_above_does_not_lead_in_circles(here):
    write({"x/a.txt": "a"})
    (here / "x" / "up").symlink_to(here / "x")
    assert names("x") == ["x/a.txt"]


def test_a_link_to_nothing_is_an_error_and_not_passed_over(here):
    write({"x/a.txt": "a"})
    (here / "x" / "gone.txt").symlink_to(here / "nowhere.txt")
    with pytest.raises(
        EverlongError, match=r"^x/gone\.txt is no file \(a link to nothing\?\): mend it, or take it out"
    ):
        names("x")


def test_a_file_has_the_same_name_by_every_way_to_it(here, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "o.txt"
    outside.write_text("o")
    write({"a.txt": "a"})
    assert names("a.txt") == names(str(here / "a.txt")) == names(f"../{here.name}/*.txt") == ["a.txt"]
    assert names(str(outside)) == [outside.resolve().as_posix()]


def test_text_is_kept_as_it_is_but_for_the_byte_order_mark(here):
    write({"a.txt": b"\xef\xbb\xbfone\r\ntwo\xc3\xa9\n"})
    assert read_documents(["a.txt"]).documents[0].text == "one\r\ntwoé\n"


def test_each_line_of_a_jsonl_file_is_a_document(here):
    rows = [{"text": "one\u2028still one"}, {"text": "two", "id": 7}]
    content = "\ufeff" + json.dumps(rows[0], ensure_ascii=False) + "\r\n\n" + json.dumps(rows[1])
    write({"a.jsonl": content})
    documents = read_documents(["a.jsonl"]).documents
    assert [(document.name, document.text) for document in documents] == [
        ("a.jsonl:1", "one\u2028still one"),
        ("a.jsonl:3", "two"),
    ]


def test_another_column_can_be_asked_for(here):
    write({"a.jsonl": '{"body": "x"}\n'})
    assert read_documents(["a.jsonl"], text_column="body").documents[0].text == "x"


def test_empty_documents_are_left_out_and_named(here):
    write({"a.txt": "", "b.txt": " \n", "c.txt": "c", "d.jsonl": '{"text": ""}\n{"text": "d"}\n', "e.jsonl": "\n"})
    documents = read_documents(["."])
    assert [document.name for document in documents] == ["c.txt", "d.jsonl:2"]
    assert documents.skipped == dict.fromkeys(["a.txt", "b.txt", "d.jsonl:1", "e.jsonl"], "empty")
    assert len(documents) == 2


@pytest.mark.parametrize(
    ("files", "patterns", "message"),
    [
        (
            {},
            ["missing/*.txt"],
            r"^nothing matches 'missing/\*.txt': give files, folders or globs of .jsonl, .md, .py",
        ),
        ({}, [""], "^nothing matches ''"),
        ({}, [], "^no files given: give files"),
        (
            {"a.pdf": "x"},
            ["a.pdf"],
            r"^a.pdf is no .jsonl, .md, .py, .txt \(also .gz or .zst\) or .parquet file: convert it, or leave",
        ),
        ({"x/a.pdf": "x"}, ["x/*"], r"^x/a.pdf is no .* leave it out of 'x/\*'$"),
        ({"x/a.pdf": "x"}, ["x"], r"^'x' holds no .jsonl, .md, .py, .txt .* files"),
        ({"a.txt": b"ab\xffc"}, ["a.txt"], r"^a.txt is not UTF-8 at byte 2 \(0xff\): re-encode it as UTF-8$"),
        (
            {"a.jsonl": b'{"text": "a"}\n{"text": "\xe9"}\n'},
            ["a.jsonl"],
            r"^a.jsonl line 2 is not UTF-8 at byte 24 \(0xe9\)",
        ),
        (
            {"a.jsonl": '{"text": "a"}\n{"text": \n'},
            ["a.jsonl"],
            r"^a.jsonl line 2 is not JSON \(.*one JSON object a line$",
        ),
        ({"a.jsonl": "[1]\n"}, ["a.jsonl"], "^a.jsonl line 1 is a JSON list"),
        ({"a.jsonl": '{"b": 1, "a": 2}'}, ["a.jsonl"], r"^a.jsonl line 1 has no column 'text'; it has \['a', 'b'\]"),
        ({"a.jsonl": '{"text": null}'}, ["a.jsonl"], "^a.jsonl line 1: column 'text' is null, not text"),
        ({"a.jsonl": '{"text": "a\\ud800"}'}, ["a.jsonl"], "^a.jsonl line 1: column 'text' has half a character at 1"),
        ({"a.txt": "", "b.txt": "\n"}, ["a.txt", "b.txt"], "^all 2 documents are empty, such as a.txt: give files"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_line(here, files, patterns, message):
    write(files)
    with pytest.raises(EverlongError, match=message) as caught:
        read_documents(patterns)
    assert "\n" not in str(caught.value)


def test_a_link_to_nothing_is_named(here):
    (here / "a.txt").symlink_to(here / "gone.txt")
    with pytest.raises(EverlongError, match=r"a.txt cannot be read: No such file"):
        read_documents(["a.txt"])
