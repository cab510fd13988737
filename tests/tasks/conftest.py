"""A small bAbI, a small book, and the tokenizers that the suites run over."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from everlong.data.tokenizers import load_tokenizer
from everlong.tasks.config import BABILongConfig, RecallConfig, TasksConfig
from everlong.tasks.registry import TASKS

TOKENIZERS = ("bytes", "bpe4096_books.json", "20B_tokenizer.json", "metaspace")
PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")


def write_babi(folder: Path) -> None:
    """qa1 and qa6 in bAbI's form: twelve stories of two questions each, in a training and a test file."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(0)
    for name, tail in (("qa1", "single-supporting-fact"), ("qa6", "yes-no-questions")):
        for part in ("train", "test"):
            lines = []
            for _ in range(12):
                number = 0
                for _ in range(2):
                    first, second, asked = random.choice(PLACES, 3)
                    question = (
                        ("Where is Mary?", second)
                        if name == "qa1"
                        else (
                            f"Is Mary in the {asked}?",
                            "yes" if asked == second else "no",
                        )
                    )
                    lines += [
                        f"{number + 1} Mary went to the {first}.",
                        f"{number + 2} Mary moved to the {second}.",
                        f"{number + 3} {question[0]}\t{question[1]}\t{number + 2}",
                    ]
                    number += 3
            (folder / f"{name}_{tail}_{part}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="session")
def babi(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("babi")
    write_babi(folder)
    return folder


@pytest.fixture(scope="session")
def books(tmp_path_factory) -> Path:
    """Two books of numbered sentences, so that what was taken can be found again."""
    folder = tmp_path_factory.mktemp("books")
    for book in ("one", "two"):
        text = " ".join(f"Sentence {number} of book {book} says little." for number in range(400))
        (folder / f"{book}.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def settings(babi, books) -> TasksConfig:
    return TasksConfig(
        babilong=BABILongConfig(babi=str(babi), books=(str(books),), questions=("qa1", "qa6")),
        recall=RecallConfig(facts=(2, 12), distances=(0, 60)),
    )


@pytest.fixture(scope="session")
def metaspace(tmp_path_factory) -> Path:
    """A tokenizer as SentencePiece makes them: a space, written as a mark, before every text."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    signs = [chr(code) for code in range(33, 127)] + ["\u2581"]
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))],
        initial_alphabet=signs,
        show_progress=False,
    )
    text = "Mary went to the kitchen. The rain falls on the old hill. The pass key is hidden. bk is 7. What is it?"
    tokenizer.train_from_iterator([text] * 4, trainer)
    path = tmp_path_factory.mktemp("metaspace") / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request):
    if request.param == "bytes":
        return load_tokenizer("bytes")
    if request.param == "metaspace":
        return load_tokenizer(str(request.getfixturevalue("metaspace")))
    return load_tokenizer(str(request.getfixturevalue("shared") / "tokenizers" / request.param))


@pytest.fixture
def make(settings):
    def make(name, tokenizer, *, training=False):
        return TASKS[name](getattr(settings, name), tokenizer, training=training)

    return make


@pytest.fixture(scope="session")
def real_babi(shared, tmp_path_factory) -> Path:
    """bAbI itself, unpacked."""
    return unpacked(shared / "babi" / "babi-qa1-10.tar.zst", tmp_path_factory.mktemp("real-babi")) / "en"


def unpacked(archive: Path, folder: Path) -> Path:
    done = subprocess.run(["tar", "--zstd", "-xf", str(archive), "-C", str(folder)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"{archive.name} cannot be unpacked here: {done.stderr.decode().strip()}")
    return folder
