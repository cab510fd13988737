"""The bytes of a file, decompressed where its name says so; a stream that is cut off or damaged is an error."""

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from everlong.errors import EverlongError

COMPRESSIONS = (".gz", ".zst")
BLOCK = 1 << 16  # raw bytes; what they decompress to is in memory at once


def blocks(path: Path, advance: Callable[[int], None]) -> Iterator[bytes]:
    """The content in blocks.

    zstandard's own stream reader ends quietly where a frame is cut off, and so does every reader of an empty .gz file:
    here a stream has to come to its own end.

    Args:
        path: decompressed if it ends in .gz or .zst.
        advance: called with the number of raw bytes just read.

    Raises:
        EverlongError: the stream is cut off or damaged; names the last whole line before it.
    """
    compression = path.suffix.lower()
    lines = 0
    with path.open("rb") as file:
        if compression not in COMPRESSIONS:
            while raw := file.read(BLOCK):
                advance(len(raw))
                yield raw
            return
        try:
            for block in _decompressed(file, advance, *_decompressor(compression)):
                lines += block.count(b"\n")
                yield block
        except _Damaged as damage:
            raise EverlongError(
                f"{path} is {damage} after line {lines}: fetch or compress it again, nothing of it is used"
            ) from damage


def lines(path: Path, advance: Callable[[int], None]) -> Iterator[bytes]:
    r"""The lines, each with its end; ``\n`` alone ends a line."""
    begun: list[bytes] = []  # a line may run over many blocks
    for block in blocks(path, advance):
        first, *rest = block.split(b"\n")
        begun.append(first)
        for piece in rest:
            yield b"".join(begun) + b"\n"
            begun = [piece]
    if any(begun):
        yield b"".join(begun)


class _Damaged(Exception):
    """Says what is wrong with a compressed stream."""


def _decompressor(compression: str) -> tuple[Callable[[], Any], type[Exception]]:
    """What makes a decompressor of one frame, and the error that it raises."""
    if compression == ".gz":
        return lambda: zlib.decompressobj(wbits=16 + zlib.MAX_WBITS), zlib.error
    import zstandard

    whole = zstandard.ZstdDecompressor(max_window_size=1 << 31)  # as large as `zstd --long` makes them
    return whole.decompressobj, zstandard.ZstdError


def _decompressed(
    file: Any, advance: Callable[[int], None], new: Callable[[], Any], failure: type[Exception]
) -> Iterator[bytes]:
    """A file may hold several frames one after another."""
    frame = new()
    while raw := file.read(BLOCK):
        advance(len(raw))
        while raw:
            if frame.eof:
                frame = new()
            try:
                yield frame.decompress(raw)
            except failure as error:
                raise _Damaged(f"damaged ({error})") from error
            raw = frame.unused_data if frame.eof else b""
    if not frame.eof:
        raise _Damaged("cut off: its compressed stream has no end")
