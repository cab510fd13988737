"""What to read and how: the data part of every verb's configuration (no torch here: it serves the help pages)."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The text that is read, the part of it that is held out, and how it becomes tokens."""

    data: tuple[str, ...] = ()
    """Files, folders or globs of .txt, .md, .py or .jsonl. Without any: the Python standard library's own sources."""

    held_out: tuple[str, ...] = ()
    """Text to measure on and never to train on, as in --data. Without any: a share of --data, where a verb trains."""

    tokenizer: str | None = None
    """A tokenizer.json, a folder, a hub id, or "bytes". Default: from the model's folder, then its configuration."""

    text_column: str = "text"
    """The field of a .jsonl line that holds its text."""
