"""What is written stays written: files, and the names that lead to them, are on the disk before they are relied on."""

import errno
import os
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)


def flush(path: Path) -> None:
    """Waits until a file, or a folder's list of names, is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_all(folder: Path) -> None:
    """Waits until a folder and all that lies in it, folders within it included, is on the disk."""
    for path in folder.iterdir():
        if path.is_dir():
            flush_all(path)
        else:
            flush(path)
    flush(folder)


def make_folder(folder: Path) -> None:
    """Makes a folder, and those above it that are missing; their names are on the disk then."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        flush(each.parent)


def rename(source: Path, target: Path) -> None:
    """Gives a file or folder its name, in place of a file of that name; the name is on the disk then.

    What stands behind it must have been flushed before, or a power loss could leave the name without it.
    """
    source.replace(target)
    flush(target.parent)


def is_full(error: BaseException) -> bool:
    """Whether an error says that a disk, or what one may have of it, is full."""
    return getattr(error, "errno", None) in FULL or "No space left" in str(error)
