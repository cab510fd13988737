"""From inputs to a corpus: small ones in memory, large ones by a token file that is made once and used again."""

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from filelock import AcquireReturnProxy, FileLock, Timeout

from everlong.data._input import Input, file_digest
from everlong.data.config import DataConfig
from everlong.data.corpus import Corpus
from everlong.data.documents import Document, Documents
from everlong.data.inputs import collect, documents_of, nothing_kept, unreadable
from everlong.data.token_file import FORMAT, TokenFile, TornTokenFile, write_token_file
from everlong.data.tokenization import tokenize
from everlong.data.tokenizers import Tokenizer
from everlong.errors import EverlongError, RunStopped
from everlong.progress import Progress

SMALL = 1 << 23  # bytes of text: tokenized anew each time, in memory, where no --token-cache is named
EXAMPLES = 3  # documents left out that a line names


def open_corpus(inputs: Sequence[Input], tokenizer: Tokenizer, config: DataConfig, progress: Progress) -> Corpus:
    """The inputs as tokens. What was left out, and a token file that had to be made anew, is said in a line.

    Args:
        inputs: as ``find_inputs`` gives them.
        tokenizer: makes the ids.
        config: says which column holds text, where token files lie, and how many processes tokenize.
        progress: where bars and lines are shown.

    Raises:
        EverlongError: anything that cannot be read, or no document holds any text.
        RunStopped: the disk is too full for the token file.
    """
    try:
        sizes = [each.expected_text for each in inputs]
    except OSError as error:
        raise unreadable(error) from error
    small = all(size is not None for size in sizes) and sum(size or 0 for size in sizes) < SMALL
    if config.token_cache is None and small:
        return encode_in_memory(collect(inputs, config.text_column), tokenizer, progress)
    return Corpus(_TokenCache(config, tokenizer, progress).documents(inputs))


def encode_in_memory(found: Documents, tokenizer: Tokenizer, progress: Progress) -> Corpus:
    """Documents as tokens, and a line for those that were left out."""
    say_left_out(len(found.skipped), [f"{name} ({why})" for name, why in found.skipped.items()], progress)
    characters = sum(len(document.text) for document in found.documents)
    with progress.task("reading text", total=characters) as task:
        return Corpus.encode(found, tokenizer, task.advance)


def say_left_out(count: int, examples: Sequence[str], progress: Progress) -> None:
    """Says in a line how many documents were left out, and names the first of them."""
    if count:
        more = ", ..." if count > EXAMPLES else ""
        progress.say(f"{count} documents are left out: {', '.join(examples[:EXAMPLES])}{more}")


def _total(inputs: Sequence[Input]) -> int | None:
    sizes = [each.size for each in inputs]
    return None if None in sizes else sum(size or 0 for size in sizes)


def cache_folder(config: DataConfig) -> Path:
    """The folder for token files: the one that is named, else that of the user's caches."""
    if config.token_cache is not None:
        return Path(config.token_cache).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "everlong" / "tokens"


class _TokenCache:
    def __init__(self, config: DataConfig, tokenizer: Tokenizer, progress: Progress):
        self._folder, self._column, self._processes = cache_folder(config), config.text_column, config.token_processes
        self._tokenizer, self._progress = tokenizer, progress

    def documents(self, inputs: Sequence[Input]) -> TokenFile:
        """The token file of these inputs: the one that is there, if it is whole, else a new one."""
        folder = self._folder / self._key(inputs)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with self._lock(folder):
                found = self._whole(folder) or self._make(folder, inputs)
        except OSError as error:
            kind = RunStopped if error.errno == errno.ENOSPC else EverlongError
            raise kind(
                f"the token file cannot be written to {self._folder} ({error.strerror}): make room, or name another "
                "folder with --token-cache"
            ) from error
        say_left_out(found.facts["skipped"], [f"{name} (empty)" for name in found.facts["examples"]], self._progress)
        return found

    def _key(self, inputs: Sequence[Input]) -> str:
        """What the tokens depend on: names and content, column, tokenizer, format."""
        try:
            with self._progress.task("fingerprinting text", total=_total(inputs)) as task:
                digests = [[each.name, each.digest(self._column, task.advance)] for each in inputs]
        except OSError as error:
            raise unreadable(error) from error
        told = [FORMAT, digests, self._column, _identity(self._tokenizer)]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]

    def _lock(self, folder: Path) -> AcquireReturnProxy:
        """Held while the token file is made, so that of several processes one makes it for all."""
        lock = FileLock(folder.with_name(f"{folder.name}.lock"), timeout=0)
        try:
            return lock.acquire()
        except Timeout:
            self._progress.say(f"waiting for another process that tokenizes the same text into {folder}")
            return lock.acquire(timeout=-1)

    def _whole(self, folder: Path) -> TokenFile | None:
        if not folder.exists():
            return None
        try:
            found = TokenFile(folder)
        except TornTokenFile as torn:
            self._progress.say(f"The token file {folder} is not whole: {torn}; it is made anew")
            return None
        tokens = f"{int(found.sizes.sum()):,} tokens of {len(found):,} documents"
        self._progress.say(f"{tokens} from the token file {folder}")
        return found

    def _make(self, folder: Path, inputs: Sequence[Input]) -> TokenFile:
        facts: dict[str, Any] = {"inputs": [each.name for each in inputs], "tokenizer": self._tokenizer.name}
        with self._progress.task("tokenizing", total=_total(inputs)) as task:
            kept = _kept(inputs, self._column, task.advance, facts)
            encoded = tokenize(kept, self._tokenizer, self._processes)
            write_token_file(folder, encoded, self._tokenizer.vocab_size, facts)
        return TokenFile(folder)


def _kept(
    inputs: Sequence[Input], column: str, advance: Callable[[int], None], facts: dict[str, Any]
) -> Iterator[Document]:
    """The documents that hold text; notes down in ``facts`` how many do not."""
    kept, examples = 0, []
    facts.update(skipped=0, examples=examples)
    for document in documents_of(inputs, column, advance):
        if document.text.strip():
            kept += 1
            yield document
        else:
            facts["skipped"] += 1
            if len(examples) <= EXAMPLES:
                examples.append(document.name)
    if not kept:
        raise nothing_kept(facts["skipped"], examples)


def _identity(tokenizer: Tokenizer) -> list[str]:
    """What its ids depend on: its files, which `save` writes, and the library; for bytes, the name alone."""
    with TemporaryDirectory() as folder:
        tokenizer.save(Path(folder))
        files = sorted(Path(folder).iterdir())
        content = [f"{path.name} {file_digest(path, lambda _: None)}" for path in files]
    return [*content, f"tokenizers {metadata.version('tokenizers')}"] if content else [tokenizer.name]
