"""What is flushed to the disk, and what gets its name, in order."""

import os
from pathlib import Path

import pytest


class Disk:
    """Watches fsync and renames from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.events: list[tuple[str, int]] = []
        flush, replace = os.fsync, os.replace

        def fsync(descriptor: int) -> None:
            self.events.append(("flushed", os.fstat(descriptor).st_ino))
            flush(descriptor)

        def rename(source: Path, target: Path) -> None:
            replace(source, target)
            self.events.append(("named", os.stat(target).st_ino))

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "replace", rename)

    def assert_lasting(self, path: Path) -> None:
        """A file or folder, all that is in it, and its name outlive a power loss from the moment it has its name."""
        named = self.events.index(("named", path.stat().st_ino))
        inside = [path, *path.rglob("*")] if path.is_dir() else [path]
        for each in inside:
            assert ("flushed", each.stat().st_ino) in self.events[:named], f"{each} is named before it is flushed"
        assert ("flushed", path.parent.stat().st_ino) in self.events[named:], f"the name of {path} is not flushed"

    def assert_made(self, folder: Path) -> None:
        """The name of a folder that was made is on the disk."""
        assert ("flushed", folder.parent.stat().st_ino) in self.events, f"the name of {folder} is not flushed"
