"""Compressed files and parquet: read like plain ones, and what is cut off or damaged is named with its place."""

import gzip
import json
import os
from pathlib import Path

import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from everlong.data import _compression
from everlong.data.inputs import find_inputs, read_documents
from everlong.errors import EverlongError

LINES = [f"row {number} " + "ab" * (number % 7) for number in range(1, 401)]
JSONL = "".join(json.dumps({"text": line}) + "\n" for line in LINES).encode()


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compress(name: str, content: bytes) -> bytes:
    return zstandard.compress(content) if name.endswith(".zst") else gzip.compress(content)


def noise(lines: int) -> bytes:
    """Lines that do not compress, so that a cut takes some of them away."""
    return b"".join(json.dumps({"text": os.urandom(40).hex()}).encode() + b"\n" for _ in range(lines))


def refused(*patterns: str) -> str:
    with pytest.raises(EverlongError) as caught:
        read_documents(patterns)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "A.JSONL.GZ"])
def test_a_compressed_jsonl_file_reads_like_the_plain_one(name):
    Path(name).write_bytes(compress(name.lower(), JSONL))
    documents = read_documents([name]).documents
    assert [document.text for document in documents] == LINES
    assert documents[6].name == f"{name}:7"


@pytest.mark.parametrize("name", ["a.txt.gz", "a.txt.zst", "a.md.zst"])
def test_a_compressed_text_file_is_one_document(name):
    Path(name).write_bytes(compress(name, "\ufeffé\r\nend".encode()))
    documents = read_documents([name]).documents
    assert [(document.name, document.text) for document in documents] == [(name, "é\r\nend")]


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_several_frames_in_one_file_are_all_read(name):
    Path(name).write_bytes(compress(name, JSONL[:5000]) + compress(name, JSONL[5000:]))
    assert [document.text for document in read_documents([name])] == LINES


@pytest.mark.parametrize("block", [1, 7, 1 << 16])
def test_lines_do_not_depend_on_the_blocks_in_which_they_are_read(monkeypatch, block):
    monkeypatch.setattr(_compression, "BLOCK", block)
    Path("a.jsonl").write_bytes(JSONL[:3000])
    text = list(_compression.lines(Path("a.jsonl"), lambda _: None))
    assert text == JSONL[:3000].splitlines(keepends=True)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_a_stream_that_is_cut_off_is_named_with_its_last_whole_line(name, share):
    whole = compress(name, noise(4000))
    Path(name).write_bytes(whole[: int(share * len(whole))])
    message = refused(name)
    assert message.startswith(f"{name} is cut off: its compressed stream has no end after line ")
    line = int(message.split("after line ")[1].split(":")[0])
    assert line < 4000
    assert (line > 1000) == (share > 0)


@pytest.mark.parametrize("name", ["a.txt.gz", "a.jsonl.gz", "a.jsonl.zst"])
def test_a_damaged_stream_is_named_with_its_last_whole_line(name):
    content = bytearray(compress(name, noise(4000)))
    content[0 if name.endswith("zst") else len(content) - 6] ^= 0xFF  # the frame's beginning; the checksum
    Path(name).write_bytes(content)
    message = refused(name)
    assert message.startswith(f"{name} is damaged (")
    assert "after line " in message


def test_a_line_that_is_no_json_is_named_in_a_compressed_file_too():
    Path("a.jsonl.zst").write_bytes(zstandard.compress(JSONL + b'{"text": \n'))
    assert refused("a.jsonl.zst").startswith("a.jsonl.zst line 401 is not JSON")


def test_a_folder_gives_all_formats_in_sorted_order():
    for name in ("b.jsonl.gz", "c.txt.zst", "d.json", "e.parquet.gz", "f.tar.gz"):
        Path("x").mkdir(exist_ok=True)
        Path("x", name).write_bytes(compress(name, b'{"text": "t"}\n'))
    parquet.write_table(pyarrow.table({"text": ["p"]}), "x/a.parquet")
    names = [document.name for document in read_documents(["x"])]
    assert names == ["x/a.parquet:1", "x/b.jsonl.gz:1", "x/c.txt.zst"]


def write_parquet(texts: list, group: int = 3, **options) -> None:
    parquet.write_table(pyarrow.table({"text": texts, "n": range(len(texts))}), "a.parquet", group, **options)


def test_each_row_of_a_parquet_file_is_a_document():
    write_parquet(LINES, group=150)
    documents = read_documents(["a.parquet"]).documents
    assert [document.text for document in documents] == LINES
    assert [documents[0].name, documents[-1].name] == ["a.parquet:1", "a.parquet:400"]


def test_a_null_text_is_named_with_row_and_row_group():
    write_parquet(["a", "b", "c", "d", None])
    assert refused("a.parquet").startswith("a.parquet row 5 (row group 2): column 'text' is null, not text")


def test_a_missing_or_wrong_column_is_named():
    write_parquet(["a"])
    with pytest.raises(
        EverlongError, match=r"^a.parquet has no column 'body'; it has \['n', 'text'\]: .*--text-column"
    ):
        read_documents(["a.parquet"], text_column="body")
    with pytest.raises(EverlongError, match=r"^a.parquet row 1 \(row group 1\): column 'n' is of type int, not text"):
        read_documents(["a.parquet"], text_column="n")


def test_text_in_parquet_that_is_not_utf8_is_named():
    values = pyarrow.array([b"fine", b"caf\xe9"], type=pyarrow.binary()).cast(pyarrow.string(), safe=False)
    parquet.write_table(
        pyarrow.table({"text": pyarrow.Array.from_buffers(pyarrow.string(), 2, values.buffers())}), "a.parquet"
    )
    message = refused("a.parquet")
    assert message.startswith("a.parquet row group 1, row 2: column 'text' is not UTF-8 at its byte 3")


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_parquet_file_that_is_cut_off_is_named(share):
    write_parquet(LINES)
    whole = Path("a.parquet").read_bytes()
    Path("a.parquet").write_bytes(whole[: int(share * len(whole))])
    assert refused("a.parquet").startswith("a.parquet is no whole parquet file (")


def test_a_damaged_page_is_named_with_its_row_group():
    write_parquet(LINES[:6], use_dictionary=False, compression="none", write_page_checksum=True)
    content = bytearray(Path("a.parquet").read_bytes())
    content[content.index(b"row 5")] ^= 0xFF  # in the second row group
    Path("a.parquet").write_bytes(content)
    message = refused("a.parquet")
    assert message.startswith("a.parquet row group 2 is damaged after row 3 (")


def test_bytes_read_are_counted_to_the_end():
    Path("a.jsonl.gz").write_bytes(gzip.compress(JSONL))
    Path("b.txt").write_bytes(JSONL)
    write_parquet(LINES, group=7)
    for each in find_inputs(["a.jsonl.gz", "b.txt", "a.parquet"]):
        done: list[int] = []
        list(each.documents("text", done.append))
        assert sum(done) == each.size
        digested: list[int] = []
        each.digest("text", digested.append)
        assert sum(digested) == each.size


def test_a_name_with_a_known_ending_is_a_missing_file_not_a_dataset():
    assert refused("owner/name.txt").startswith("nothing matches 'owner/name.txt': give files")
