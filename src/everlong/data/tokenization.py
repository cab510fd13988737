"""Documents to tokens, in order: in this process, or in several where there is much to do."""

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain
from multiprocessing import get_context, parent_process

from everlong.data.corpus import TokenDocument, encode
from everlong.data.documents import Document
from everlong.data.tokenizers import ByteTokenizer, Tokenizer
from everlong.errors import EverlongError

PARALLEL_FROM = 1 << 22  # characters: below, starting processes takes longer than tokenizing
PIECE = 1 << 19  # characters that a process is sent at a time
WAITING = 3  # pieces a process, sent or ready: what is in memory does not grow with the corpus


def tokenize(
    documents: Iterable[Document], tokenizer: Tokenizer, processes: int | None = None
) -> Iterator[TokenDocument]:
    """The tokens of each document, in the order of the documents.

    Processes are spawned, never forked: a fork of a process in which a Numba kernel has run on several threads is
    killed by OpenMP. Bytes are encoded faster than they are sent to another process, so they stay in this one.

    Args:
        documents: read as far as they are needed.
        tokenizer: makes the ids.
        processes: that tokenize; 1: this one; None: one a core, once there is text enough to be worth their start.

    Raises:
        EverlongError: a text gives no tokens at all, or a process died.
    """
    pieces = _pieces(documents)
    count = _cores() if processes is None else processes
    if count > 1 and not isinstance(tokenizer, ByteTokenizer):
        first: list[list[Document]] = []
        while sum(len(document.text) for piece in first for document in piece) < PARALLEL_FROM:
            piece = next(pieces, None)
            if piece is None:
                break
            first.append(piece)
        else:
            yield from _in_processes(chain(first, pieces), tokenizer, count)
            return
        pieces = iter(first)
    for piece in pieces:
        for document in piece:
            yield encode(document, tokenizer)


def _pieces(documents: Iterable[Document]) -> Iterator[list[Document]]:
    piece: list[Document] = []
    size = 0
    for document in documents:
        piece.append(document)
        size += len(document.text)
        if size >= PIECE:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


def _in_processes(pieces: Iterable[list[Document]], tokenizer: Tokenizer, count: int) -> Iterator[TokenDocument]:
    pool = ProcessPoolExecutor(count, get_context("spawn"), initializer=_begin, initargs=(tokenizer,))
    sent: deque[Future[list[TokenDocument]]] = deque()
    try:
        for piece in pieces:
            sent.append(pool.submit(_encode, piece))
            if len(sent) >= WAITING * count:
                yield from sent.popleft().result()
        while sent:
            yield from sent.popleft().result()
    except BrokenProcessPool as error:
        raise EverlongError(
            'a process that tokenizes died (out of memory, or a script without `if __name__ == "__main__":` started '
            "it): give fewer with --token-processes; 1 needs none"
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_tokenizer: Tokenizer | None = None  # of this process, one of those that tokenize


def _begin(tokenizer: Tokenizer) -> None:
    """The beginning of a process: it leaves Ctrl-C to its parent, and does not outlive it."""
    global _tokenizer
    _tokenizer = tokenizer
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()


def _encode(piece: list[Document]) -> list[TokenDocument]:
    assert _tokenizer is not None
    return [encode(document, _tokenizer) for document in piece]
