"""Token files: made once, used again, never half-written, made anew when they are torn, and mapped."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock
from rich.console import Console

from everlong.data import opening, token_file
from everlong.data.config import DataConfig
from everlong.data.corpus import Corpus, split
from everlong.data.inputs import find_inputs, read_documents
from everlong.data.opening import cache_folder, open_corpus
from everlong.data.tokenizers import ByteTokenizer, HuggingFaceTokenizer
from everlong.errors import EverlongError, RunStopped
from everlong.progress import Progress
from tests.data.test_tokenizers import tiny_tokenizer

ROWS = ["one two", " ", "three é", "", *(f"row {number} " * number for number in range(1, 60))]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    Path("a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ROWS))
    return tmp_path


def opened(*patterns: str, tokenizer=None, cache: str | None = "cache", **settings) -> tuple[Corpus, str]:
    """A corpus, and what was said about it."""
    console = Console(file=StringIO(), width=1000)
    config = DataConfig(token_cache=cache, **settings)
    inputs = find_inputs(patterns or ["a.jsonl"], stream=config.stream)
    corpus = open_corpus(inputs, tokenizer or ByteTokenizer(), config, Progress(console))
    return corpus, console.file.getvalue()  # type: ignore[attr-defined]


def token_files() -> list[Path]:
    return sorted(path for path in Path("cache").iterdir() if path.is_dir())


def is_mapped(tokens: np.ndarray) -> bool:
    base = tokens
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap):
            return True
        base = base.base
    return False


def test_a_token_file_gives_the_corpus_that_memory_gives():
    stored, said = opened()
    plain = Corpus.encode(read_documents(["a.jsonl"]), ByteTokenizer())
    assert stored.fingerprint == plain.fingerprint
    assert (stored.tokens, stored.longest.name) == (plain.tokens, plain.longest.name)
    assert "2 documents are left out: a.jsonl:2 (empty), a.jsonl:4 (empty)" in said
    assert all(is_mapped(document.tokens) for document in stored.documents)
    for length in (0, 100, 10_000):
        assert stored.longer_than(length).fingerprint == plain.longer_than(length).fingerprint
    assert stored.select({"a.jsonl:5", "a.jsonl:1"}).fingerprint == plain.select({"a.jsonl:5", "a.jsonl:1"}).fingerprint
    parts, same = (split(corpus, length=100, documents=8, seed=3) for corpus in (stored, plain))
    assert parts.train.fingerprint == same.train.fingerprint
    assert parts.held_out.fingerprint == same.held_out.fingerprint
    assert stored.documents[-1].name == stored.documents[len(stored.documents) - 1].name == "a.jsonl:63"
    assert [document.name for document in stored.documents[1:3]] == ["a.jsonl:3", "a.jsonl:5"]


def test_the_identity_of_a_token_file_knows_content_and_choice_and_no_folder(here):
    stored, _ = opened()
    again, _ = opened(cache="elsewhere")
    assert stored.identity == again.identity
    identities = {stored.identity, *(stored.longer_than(length).identity for length in (0, 100, 200))}
    assert stored.longer_than(100).identity == again.longer_than(100).identity
    Path("a.jsonl").write_text(Path("a.jsonl").read_text().replace("one two", "one tow"))
    identities.add(opened()[0].identity)
    assert len(identities) == 5


def test_it_is_used_again_without_tokenizing_and_says_so(monkeypatch):
    first, _ = opened()
    monkeypatch.setattr(opening, "tokenize", None)
    again, said = opened()
    assert again.fingerprint == first.fingerprint
    assert f"{first.tokens:,} tokens of {len(first.documents):,} documents from the token file cache/" in said
    assert "2 documents are left out" in said


def test_text_tokenizer_column_and_name_each_have_their_own():
    opened()
    words = HuggingFaceTokenizer("words", {"tokenizer.json": tiny_tokenizer().encode()})
    opened(tokenizer=words)
    other = tiny_tokenizer().replace('"two"', '"zwei"')
    opened(tokenizer=HuggingFaceTokenizer("words", {"tokenizer.json": other.encode()}))
    Path("b.jsonl").write_bytes(Path("a.jsonl").read_bytes())
    opened("b.jsonl")
    Path("a.jsonl").write_text('{"text": "x", "body": "y"}\n')
    opened()
    opened(text_column="body")
    assert len(token_files()) == 6


@pytest.mark.parametrize(
    ("part", "harm", "said"),
    [
        ("tokens", lambda content: content[:-1], "tokens has "),
        (
            "tokens",
            lambda content: bytes([content[0] ^ 1]) + content[1:],
            "tokens has another checksum than its header",
        ),
        ("ends", lambda content: content[8:], "ends has "),
        ("names", lambda content: content[::-1], "names has another checksum"),
        ("name_ends", None, "name_ends is missing"),
        ("header.json", lambda content: content[:50], "its header cannot be read"),
        ("header.json", None, "its header cannot be read"),
        ("header.json", lambda content: content.replace(b'"format": 1', b'"format": 2'), "it has format 2, not 1"),
    ],
)
def test_one_that_is_not_whole_is_refused_and_made_anew_with_a_line(part, harm, said):
    whole, _ = opened()
    path = token_files()[0] / part
    content = path.read_bytes()
    path.unlink()
    if harm is not None:
        path.write_bytes(harm(content))
    anew, lines = opened()
    assert f"The token file {token_files()[0]} is not whole: {said}" in lines
    assert anew.fingerprint == whole.fingerprint
    assert "not whole" not in opened()[1]


def test_nothing_appears_when_the_input_cannot_be_read():
    with Path("a.jsonl").open("a") as file:
        file.write('{"text": ')
    with pytest.raises(EverlongError, match=r"^a.jsonl line 64 is not JSON"):
        opened()
    assert token_files() == []
    Path("b.txt").write_text("\n")
    with pytest.raises(EverlongError, match=r"^all 1 documents are empty, such as b.txt: give files"):
        opened("b.txt")
    assert token_files() == []


def test_a_full_disk_stops_the_run_and_leaves_nothing(monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(token_file, "_flush", full)
    with pytest.raises(RunStopped, match=r"^the token file cannot be written to cache \(No space left on device\)"):
        opened()
    assert token_files() == []


def test_a_folder_that_cannot_be_written_is_named():
    Path("cache").write_text("a file")
    with pytest.raises(
        EverlongError, match=r"^the token file cannot be written to cache \(File exists\).*--token-cache$"
    ):
        opened()


KILLED = """
import os, sys
from everlong.data import token_file
from tests.data.test_opening import opened
written = 0
flush = token_file._flush
def die(file):
    global written
    flush(file)
    written += 1
    if written == int(sys.argv[1]):
        os.kill(os.getpid(), 9)
token_file._flush = die
opened()
"""


@pytest.mark.parametrize("at", [1, 3, 5])
def test_a_kill_while_it_is_written_leaves_nothing_that_is_used(at):
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
    done = subprocess.run([sys.executable, "-c", KILLED, str(at)], env=environment, check=False)
    assert done.returncode == -9
    assert all(path.name.startswith(".") for path in token_files())
    corpus, said = opened()
    assert "not whole" not in said
    assert corpus.fingerprint == Corpus.encode(read_documents(["a.jsonl"]), ByteTokenizer()).fingerprint
    assert len(token_files()) == 1  # what the killed process left is gone


def test_a_second_process_waits_for_the_first(monkeypatch):
    opened()
    folder = token_files()[0]
    lock = FileLock(folder.with_name(f"{folder.name}.lock"), is_singleton=False)
    lock.acquire()
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.append(opened()[1]))
    waiting.start()
    time.sleep(0.3)
    assert not found
    lock.release()
    waiting.join(timeout=20)
    assert "waiting for another process that tokenizes the same text" in found[0]


def test_small_text_stays_in_memory_unless_a_folder_is_named(here, monkeypatch):
    corpus, said = opened(cache=None)
    assert not is_mapped(corpus.documents[0].tokens)
    assert "2 documents are left out" in said
    assert not Path("home").exists()
    monkeypatch.setattr(opening, "SMALL", 100)
    large, _ = opened(cache=None)
    assert is_mapped(large.documents[0].tokens)
    assert cache_folder(DataConfig()) == here / "home" / "everlong" / "tokens"
    assert large.fingerprint == corpus.fingerprint


@pytest.mark.parametrize("size", [65_536, 65_537])
def test_tokens_are_stored_as_narrowly_as_the_vocabulary_allows(size):
    from tests.data.test_corpus import CharacterTokenizer

    text = chr(size - 1) if size > 65_536 else "a"
    Path("a.jsonl").write_text(json.dumps({"text": text}) + "\n")
    corpus, _ = opened(tokenizer=CharacterTokenizer(size))
    assert corpus.documents[0].tokens.dtype == (np.uint16 if size == 65_536 else np.uint32)
    assert corpus.documents[0].tokens.tolist() == [ord(text)]


def test_tokens_past_the_vocabulary_are_named_and_a_choice_is_judged_by_itself():
    corpus, _ = opened()
    corpus.check_vocabulary(256)
    with pytest.raises(EverlongError, match=r"^document 'a.jsonl:3' has token id 195 at position 6"):
        corpus.check_vocabulary(190)
    corpus.select({"a.jsonl:1"}).check_vocabulary(190)


def test_several_processes_make_the_same_file(monkeypatch):
    from everlong.data import tokenization

    monkeypatch.setattr(tokenization, "PARALLEL_FROM", 1)
    words = HuggingFaceTokenizer("words", {"tokenizer.json": tiny_tokenizer().encode()})
    alone, _ = opened(tokenizer=words, cache="one", token_processes=1)
    several, _ = opened(tokenizer=words, cache="two", token_processes=2)
    assert alone.fingerprint == several.fingerprint
