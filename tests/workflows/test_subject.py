"""What is trained on and what is measured on, as the flags say it."""

import pytest
from rich.console import Console

from everlong.data.config import DataConfig
from everlong.data.tokenizers import ByteTokenizer
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
