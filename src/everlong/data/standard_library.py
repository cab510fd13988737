"""The text that every machine has: the sources of the Python standard library, one document a module."""

import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from everlong.data.documents import Document, Documents
from everlong.errors import EverlongError

# Installed packages are not the library's; tests hold data and deliberately broken files; caches are no sources.
LEFT_OUT_FOLDERS = frozenset({"__pycache__", "dist-packages", "idle_test", "site-packages", "test", "tests"})
# 700 kB of generated help text in string literals; and a file of this machine, not of the library.
LEFT_OUT_MODULES = frozenset({"pydoc_data.topics", "sitecustomize"})


def standard_library(folder: Path | None = None) -> Documents:
    """Reads the running Python's own standard library, in the order of module names.

    A document is named after its module (``asyncio.base_events``; a package is ``email.__init__``). Left out: installed
    packages, the tests, ``pydoc_data.topics``, ``sitecustomize`` and files whose path is no module name, such as the
    build's configuration, which differs from machine to machine. Modules that are empty or not UTF-8 are left out and
    named in ``skipped``.

    Args:
        folder: where the sources lie; None: where the running Python has them.

    Raises:
        EverlongError: this Python carries no sources.
    """
    folder = Path(sysconfig.get_path("stdlib")) if folder is None else folder
    kept: list[Document] = []
    skipped: dict[str, str] = {}
    for name, path in sorted(_modules(folder)):
        try:
            text = path.read_bytes().decode("utf-8").removeprefix("\ufeff")
        except UnicodeDecodeError:
            skipped[name] = "not UTF-8"
            continue
        if text.strip():
            kept.append(Document(name, text))
        else:
            skipped[name] = "empty"
    if not kept:
        raise EverlongError(f"this Python has no standard library sources in {folder}: give text with --data")
    return Documents(tuple(kept), skipped)


def _modules(folder: Path) -> Iterator[tuple[str, Path]]:
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in LEFT_OUT_FOLDERS]
        for path in (Path(root, name) for name in names if name.endswith(".py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join(parts)
            named = all(part.isidentifier() for part in parts) and name not in LEFT_OUT_MODULES
            if named and path.is_file():  # a distribution may leave a link to nothing
                yield name, path
