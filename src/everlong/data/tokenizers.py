"""Text to token ids and back: bytes are built in, everything else is a Hugging Face tokenizer."""

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol, runtime_checkable

import numpy as np

from everlong.data._hub import asked_once
from everlong.errors import EverlongError

CHOICES = "--tokenizer bytes|PATH|ID"
# Any of these says that a folder holds a tokenizer; the companions only go with them.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
)
COMPANIONS = ("merges.txt", "special_tokens_map.json", "added_tokens.json", "chat_template.jinja")


@runtime_checkable
class Tokenizer(Protocol):
    """What data needs of a tokenizer.

    Attributes:
        name: what was asked for: "bytes", a path or a hub id.
        vocab_size: one more than the largest id it can give.
    """

    name: str
    vocab_size: int

    def encode(self, text: str) -> np.ndarray:
        """The ids of a text, [T] int32; nothing is added at either end and nothing is cut."""
        ...

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of some ids; those that it does not know are left out."""
        ...

    def save(self, folder: Path) -> None:
        """Writes into an existing folder what `load_tokenizer` needs to find this tokenizer there again."""
        ...


class ByteTokenizer:
    """The UTF-8 bytes of a text as ids 0 to 255, with no tokens for begin and end."""

    name = "bytes"
    vocab_size = 256

    def encode(self, text: str) -> np.ndarray:
        """The bytes, [T] int32."""
        return np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int32)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text; bytes that are no UTF-8 (half a character at a cut) become the replacement character."""
        array = np.asarray(ids, dtype=np.int64)
        return bytes(array[array < self.vocab_size].tolist()).decode("utf-8", errors="replace")

    def save(self, folder: Path) -> None:
        """Writes nothing: bytes have no files, and our config.json says "bytes"."""


class HuggingFaceTokenizer:
    """A tokenizer of the `tokenizers` library.

    Encodes without adding special tokens, and without the truncation and padding that its file may ask for; special
    tokens that stand in the text are recognised, as is that library's way.

    Args:
        name: what it is called in records and messages.
        files: file name -> content. ``tokenizer.json`` is what is used; all of them are written by `save`, so that a
            folder's own files come out as they went in.

    Raises:
        EverlongError: ``tokenizer.json`` is missing, cannot be read as one, or has an empty vocabulary.
    """

    def __init__(self, name: str, files: Mapping[str, bytes]):
        import tokenizers

        if "tokenizer.json" not in files:
            raise EverlongError(f"tokenizer {name!r} has no fast version (tokenizer.json): choose another, {CHOICES}")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(files["tokenizer.json"])
        except Exception as error:  # the library raises plain Exception, too
            raise EverlongError(f"{name!r} cannot be read as a tokenizer: {_line(error)}") from error
        if not self._tokenizer.get_vocab_size(with_added_tokens=False):  # transformers makes this of missing files
            raise EverlongError(
                f"tokenizer {name!r} has no vocabulary, some files are missing: choose another, {CHOICES}"
            )
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._files = dict(files)
        self.name = name
        self.vocab_size = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)

    def encode(self, text: str) -> np.ndarray:
        """The ids, [T] int32, without special tokens at the ends."""
        return np.asarray(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int32)

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text, special tokens included."""
        return self._tokenizer.decode(np.asarray(ids, dtype=np.int64).tolist(), skip_special_tokens=False)

    def save(self, folder: Path) -> None:
        """Writes the tokenizer's files into the folder."""
        for name, content in self._files.items():
            (folder / name).write_bytes(content)


def load_tokenizer(
    request: str | None, *, model_folder: Path | None = None, configured: str | None = None
) -> Tokenizer:
    """The tokenizer that is asked for, else the one in the model's folder, else the one its configuration names.

    Args:
        request: "bytes", the path of a tokenizer.json (under any name) or of a folder with tokenizer files, or a hub
            id; only ``owner/name`` with no such path is a hub id. None: not asked for.
        model_folder: where to look next.
        configured: what our own config.json says, in the terms of ``request``.

    Raises:
        EverlongError: nothing says which, the path does not exist, its files cannot be read, or the hub does not give
            it.
    """
    if request is not None:
        return _named(request)
    if model_folder is not None and any((model_folder / name).is_file() for name in TOKENIZER_FILES):
        return _from_folder(model_folder)
    if configured is not None:
        return _named(configured)
    where = f"no tokenizer files in {model_folder}" if model_folder is not None else "no model folder to look in"
    raise EverlongError(f"no tokenizer: {where}, and no configuration names one; say which with {CHOICES}")


def _named(request: str) -> Tokenizer:
    if request == "bytes":
        return ByteTokenizer()
    path = Path(request).expanduser()
    if path.is_dir():
        return _from_folder(path)
    if path.is_file():
        return HuggingFaceTokenizer(request, {"tokenizer.json": _content(path)})
    if re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", request):
        return _from_transformers(request)
    raise EverlongError(f"no tokenizer at {request!r}: give {CHOICES}, where ID is owner/name")


def _from_folder(folder: Path) -> HuggingFaceTokenizer:
    present = [name for name in (*TOKENIZER_FILES, *COMPANIONS) if (folder / name).is_file()]
    if "tokenizer.json" in present:
        return HuggingFaceTokenizer(str(folder), {name: _content(folder / name) for name in present})
    if not set(present) & set(TOKENIZER_FILES):
        raise EverlongError(f"no tokenizer files in {folder} (such as tokenizer.json): give {CHOICES}")
    return _from_transformers(str(folder))


def _from_transformers(source: str) -> HuggingFaceTokenizer:
    """Lets transformers find, download and convert; keeps the files that it would write."""
    from transformers import AutoTokenizer

    try:
        with nullcontext() if Path(source).is_dir() else asked_once():
            tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        with TemporaryDirectory() as folder:
            tokenizer.save_pretrained(folder)
            files = {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}
    except Exception as error:  # the hub, the network and every converter have errors of their own
        raise EverlongError(f"transformers cannot load the tokenizer {source!r}: {_line(error)}; {CHOICES}") from error
    return HuggingFaceTokenizer(source, files)


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EverlongError(f"{path} cannot be read: {error.strerror}") from error


def _line(error: Exception) -> str:
    """The first line of another library's message."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
