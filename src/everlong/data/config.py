"""What to read and how: the data part of every verb's configuration (no torch here: it serves the help pages)."""

from dataclasses import dataclass

from everlong.errors import EverlongError


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The text that is read, the part of it that is held out, and how it becomes tokens."""

    data: tuple[str, ...] = ()
    """Files, folders or globs of .txt, .md, .py, .jsonl (also .gz, .zst) or .parquet; or Hugging Face datasets as
    owner/name[:configuration[:split]], with FOLDER for owner/name where it is local. A text file is one document, and
    so is a line of a .jsonl file or a row. Without any: the Python standard library's own sources."""

    held_out: tuple[str, ...] = ()
    """Text to measure on and never to train on, as in --data. Without any: a share of --data, where a verb trains."""

    tokenizer: str | None = None
    """A tokenizer.json, a folder, a hub id, or "bytes". Default: from the model's folder, then its configuration."""

    text_column: str = "text"
    """The field of a .jsonl line, or the column of a .parquet file or dataset, that holds the text."""

    stream: bool = False
    """Read Hugging Face datasets row by row, without fetching them whole; split train[:1000] is the first rows."""

    token_cache: str | None = None
    """Folder for token files, made once for a text and a tokenizer and used again. Default: ~/.cache/everlong/tokens,
    for 8 MB of text or more; less is tokenized anew each time."""

    token_processes: int | None = None
    """Processes that tokenize; 1 needs no others. Default: one a core where there is much text."""

    def __post_init__(self) -> None:
        if self.token_processes is not None and self.token_processes < 1:
            raise EverlongError(f"--token-processes {self.token_processes} must be at least 1")
