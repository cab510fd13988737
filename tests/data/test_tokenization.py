"""Tokenization in several processes gives what one gives, in order, in bounded memory, and outlives no one."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from everlong.data import tokenization
from everlong.data.documents import Document
from everlong.data.tokenization import tokenize
from everlong.data.tokenizers import ByteTokenizer, HuggingFaceTokenizer
from everlong.errors import EverlongError
from tests.data.test_tokenizers import tiny_tokenizer

WORDS = HuggingFaceTokenizer("words", {"tokenizer.json": tiny_tokenizer().encode()})
TEXTS = [("one two " * (1 + number % 50)) + "three" for number in range(400)]


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(tokenization, "PARALLEL_FROM", 1)
    monkeypatch.setattr(tokenization, "PIECE", 1000)


def documents(taken: list[int] | None = None):
    for number, text in enumerate(TEXTS):
        if taken is not None:
            taken.append(number)
        yield Document(f"d{number}", text)


def test_several_processes_give_the_tokens_of_one_in_the_order_of_the_documents(small_pieces):
    taken: list[int] = []
    ahead = 0
    found = []
    for document in tokenize(documents(taken), WORDS, 2):
        found.append(document)
        ahead = max(ahead, len(taken) - len(found))
    assert [document.name for document in found] == [f"d{number}" for number in range(len(TEXTS))]
    for document, alone in zip(found, tokenize(documents(), WORDS, 1), strict=True):
        assert document.tokens.dtype == np.uint16
        assert np.array_equal(document.tokens, alone.tokens)
    assert ahead < len(TEXTS) // 2  # the whole corpus is never in memory


@pytest.mark.parametrize("tokenizer", [WORDS, ByteTokenizer()], ids=["little text", "bytes"])
def test_no_process_is_started_where_it_is_not_worth_it(monkeypatch, tokenizer):
    monkeypatch.setattr(tokenization, "ProcessPoolExecutor", None)
    if isinstance(tokenizer, ByteTokenizer):
        monkeypatch.setattr(tokenization, "PARALLEL_FROM", 1)
    assert len(list(tokenize(documents(), tokenizer))) == len(TEXTS)


def test_what_one_process_refuses_is_refused_by_several(small_pieces):
    bad = [*documents(), Document("nothing", "\t"), *documents()]
    with pytest.raises(EverlongError, match=r"^tokenizer 'words' makes nothing of document 'nothing'"):
        list(tokenize(bad, WORDS, 2))


def test_what_cannot_be_read_ends_all_processes(small_pieces):
    def torn():
        yield from documents()
        raise EverlongError("a.jsonl line 7 is not JSON")

    with pytest.raises(EverlongError, match="line 7"):
        list(tokenize(torn(), WORDS, 2))


class Deadly(HuggingFaceTokenizer):
    def encode(self, text):
        os._exit(7)


def test_a_process_that_dies_is_an_error_and_no_wait(small_pieces):
    deadly = Deadly("deadly", {"tokenizer.json": tiny_tokenizer().encode()})
    with pytest.raises(EverlongError, match=r"^a process that tokenizes died .*--token-processes"):
        list(tokenize(documents(), deadly, 2))


def run(script: Path, content: str) -> str:
    """What a script prints, to a file: processes that outlive it would hold a pipe open."""
    script.write_text(textwrap.dedent(content))
    root = Path(__file__).resolve().parents[2]
    paths = {"PYTHONPATH": os.pathsep.join([str(root), str(root / "src")]), "NUMBA_NUM_THREADS": "2"}
    printed = script.with_suffix(".out")
    with printed.open("w") as out:
        command = [sys.executable, str(script)]
        subprocess.run(command, stdout=out, stderr=out, env=os.environ | paths, timeout=300, check=False)
    return printed.read_text()


AFTER_KERNELS = """
    import numba
    import numpy as np

    from everlong.data import tokenization
    from everlong.data.documents import Document

    numba.config.THREADING_LAYER = "omp"

    @numba.njit(parallel=True, cache=True)
    def doubled(values):
        out = np.empty_like(values)
        for place in numba.prange(len(values)):
            out[place] = 2 * values[place]
        return out

    class Doubles:
        name, vocab_size = "doubles", 300

        def encode(self, text):
            return doubled(np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32))

        def decode(self, ids): ...
        def save(self, folder): ...

    if __name__ == "__main__":
        doubled(np.ones(100_000, dtype=np.int32))
        tokenization.PARALLEL_FROM = tokenization.PIECE = 1000
        documents = [Document(f"d{number}", "12" * 50) for number in range(100)]
        found = list(tokenization.tokenize(documents, Doubles(), 2))
        assert all(document.tokens.tolist() == [98, 100] * 50 for document in found)
        print(numba.threading_layer(), len(found))
"""


def test_processes_tokenize_after_a_kernel_has_run_on_threads_of_openmp(tmp_path):
    """A fork would be killed by OpenMP as soon as it used threads itself; a spawned process begins anew."""
    assert run(tmp_path / "script.py", AFTER_KERNELS).split() == ["omp", "100"]


ORPHANS = """
    import multiprocessing
    import os
    from everlong.data import tokenization
    from everlong.data.documents import Document
    from everlong.data.tokenizers import HuggingFaceTokenizer
    from tests.data.test_tokenizers import tiny_tokenizer

    if __name__ == "__main__":
        tokenization.PARALLEL_FROM = tokenization.PIECE = 10
        tokenizer = HuggingFaceTokenizer("words", {"tokenizer.json": tiny_tokenizer().encode()})
        documents = (Document(f"d{number}", "one two " * 20) for number in range(100))
        running = tokenization.tokenize(documents, tokenizer, 2)
        next(running)
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="asks /proc which processes are there")
def test_processes_end_when_their_parent_is_killed(tmp_path):
    first, *_ = run(tmp_path / "script.py", ORPHANS).splitlines()  # Python's resource tracker may have words of its own
    children = first.split()
    assert len(children) == 2
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and any(alive(child) for child in children):
        time.sleep(0.05)
    assert not [child for child in children if alive(child)]


def alive(process: str) -> bool:
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
