"""What to read and how: the data part of every verb's configuration (no torch here: it serves the help pages)."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The text that is read, the part of it that is held out, and how it becomes tokens."""

    data: tuple[str, ...] = ()
    """Text to read: files, folders or globs of .txt, .md, .py or .jsonl. Without any: the Python standard library's own
    sources."""

    held_out: tuple[str, ...] = ()
    """Text that is never trained on, for the measurements: files, folders or globs as in --data. Without any: a share
    of --data is held out by rule."""

    tokenizer: str | None = None
    """How text becomes tokens: "bytes", the path of a tokenizer.json or of a folder that holds one, or a hub id
    (owner/name). Without it: what lies in the model's folder, then what its configuration says."""

    text_column: str = "text"
    """The field of a .jsonl line that holds its text."""
