"""What is trained on and what is measured on, as the flags say it."""

import gzip

import pyarrow
import pytest
import zstandard
from pyarrow import parquet
from rich.console import Console

from everlong.data.config import DataConfig
from everlong.data.tokenizers import ByteTokenizer
from everlong.errors import EverlongError
from everlong.progress import Progress
from everlong.workflows._subject import bundled_held_out, open_text


@pytest.fixture
def folder(tmp_path):
    for index in range(6):
        (tmp_path / f"{index}.txt").write_text(f"document {index} " * (20 + index))
    return tmp_path


def names(config, *, trains):
    progress = Progress(Console(quiet=True))
    text = open_text(config, ByteTokenizer(), trains=trains, length=250, documents=2, seed=0, progress=progress)
    return [{d.name.rsplit("/", 1)[-1] for d in part.documents} for part in (text.train, text.held_out)]


def test_held_out_text_is_taken_out_of_the_data(folder):
    config = DataConfig(data=(str(folder),), held_out=(str(folder / "0.txt"), str(folder / "3.txt")))
    train, held_out = names(config, trains=True)
    assert held_out == {"0.txt", "3.txt"}
    assert train == {"1.txt", "2.txt", "4.txt", "5.txt"}


def test_without_held_out_text_a_part_is_held_out_by_rule(folder):
    train, held_out = names(DataConfig(data=(str(folder),)), trains=True)
    assert len(held_out) == 2
    assert train | held_out == {f"{index}.txt" for index in range(6)}
    assert not train & held_out


def test_a_verb_that_does_not_train_measures_on_all_of_the_data(folder):
    train, held_out = names(DataConfig(data=(str(folder),)), trains=False)
    assert train == set()
    assert held_out == {f"{index}.txt" for index in range(6)}


def test_the_bundled_models_held_out_modules_are_never_trained_on():
    progress = Progress(Console(quiet=True))
    text = open_text(DataConfig(), ByteTokenizer(), trains=True, length=16384, documents=32, seed=0, progress=progress)
    held_out = bundled_held_out()
    assert held_out is not None
    assert not {document.name for document in text.train.documents} & held_out
    assert sum(len(document.tokens) > 16384 for document in text.held_out.documents) >= 32


@pytest.mark.parametrize("cached", [False, True])
def test_every_kind_of_text_is_opened_side_by_side(tmp_path, monkeypatch, cached):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "prepared")
    place = tmp_path / "text"
    (place / "set").mkdir(parents=True)
    rows = b"".join(b'{"text": "document %d"}\n' % number for number in range(3))
    (place / "a.jsonl.gz").write_bytes(gzip.compress(rows))
    (place / "b.jsonl.zst").write_bytes(zstandard.compress(rows))
    (place / "c.txt.zst").write_bytes(zstandard.compress(b"document 3"))
    parquet.write_table(pyarrow.table({"text": ["document 4"]}), place / "d.parquet")
    (place / "set" / "e.jsonl").write_bytes(rows)
    data = (str(place / "*.*"), f"{place / 'set'}::train")
    config = DataConfig(data=data, token_cache=str(tmp_path / "tokens") if cached else None)
    progress = Progress(Console(quiet=True))
    text = open_text(config, ByteTokenizer(), trains=False, length=250, documents=2, seed=0, progress=progress)
    assert len(text.held_out.documents) == 3 + 3 + 1 + 1 + 3
    assert {bytes(document.tokens.tolist()) for document in text.held_out.documents} == {
        b"document %d" % number for number in range(5)
    }


def test_held_out_files_are_taken_out_of_what_a_folder_gives_with_token_files_too(folder, tmp_path):
    config = DataConfig(data=(str(folder),), held_out=(str(folder / "[03].txt"),), token_cache=str(tmp_path / "tokens"))
    train, held_out = names(config, trains=True)
    assert held_out == {"0.txt", "3.txt"}
    assert train == {"1.txt", "2.txt", "4.txt", "5.txt"}


def test_nothing_left_to_train_on_is_refused(folder):
    with pytest.raises(EverlongError, match=r"^all of --data is held out and nothing is left to train on"):
        names(DataConfig(data=(str(folder),), held_out=(str(folder),)), trains=True)
