"""The text without a download: enough of it, named by module, the same each time."""

from pathlib import Path

import pytest

from everlong.data.standard_library import standard_library
from everlong.errors import EverlongError


@pytest.fixture(scope="module")
def library():
    return standard_library()


def test_there_is_enough_to_train_on_and_to_hold_out(library):
    sizes = [len(document.text.encode()) for document in library]
    assert len(sizes) >= 300
    assert sum(size > 16_384 for size in sizes) >= 60


def test_documents_are_named_after_modules_in_their_order(library):
    names = [document.name for document in library]
    assert names == sorted(names)
    assert {"asyncio.base_events", "email.__init__", "argparse"} <= set(names)
    assert all(part.isidentifier() for name in names for part in name.split("."))


def test_tests_installed_packages_and_generated_help_are_left_out(library):
    parts = {part for document in library for part in document.name.split(".")}
    assert not parts & {"test", "tests", "idle_test", "__pycache__", "pytest", "numpy"}
    assert "pydoc_data.topics" not in {document.name for document in library}


def test_it_is_the_same_each_time(library):
    assert standard_library() == library


def test_only_modules_are_taken_and_what_is_left_out_is_named(tmp_path: Path):
    for name in (
        "b.py",
        "a/__init__.py",
        "a/c.py",
        "test/d.py",
        "site-packages/e.py",
        "config-3/f.py",
        "g-1.py",
        "h.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x = 1\n")
    (tmp_path / "a" / "__init__.py").write_text("")
    (tmp_path / "gone.py").symlink_to(tmp_path / "nowhere.py")
    (tmp_path / "latin.py").write_bytes(b"# \xe9")
    library = standard_library(tmp_path)
    assert [document.name for document in library] == ["a.c", "b"]
    assert library.skipped == {"a.__init__": "empty", "latin": "not UTF-8"}


def test_a_python_without_sources_is_told_how_to_go_on(tmp_path: Path):
    with pytest.raises(EverlongError, match=r"no standard library sources in .*: give text with --data$"):
        standard_library(tmp_path / "python311.zip")
