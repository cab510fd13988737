"""Ids that come one by one give the text that all of them give together."""

import pytest

from everlong.data.text_stream import TextStream
from everlong.data.tokenizers import ByteTokenizer, load_tokenizer

TEXT = "Two naïve cafés, 模型 and 🦙 in one line.\n"


def streamed(tokenizer, ids):
    stream = TextStream(tokenizer)
    return [stream.add(int(token)) for token in ids] + [stream.end()]


@pytest.fixture(params=["bytes", "bpe4096_books.json", "20B_tokenizer.json"])
def tokenizer(request):
    if request.param == "bytes":
        return ByteTokenizer()
    return load_tokenizer(str(request.getfixturevalue("shared") / "tokenizers" / request.param))


def test_streamed_text_is_the_text(tokenizer):
    pieces = streamed(tokenizer, tokenizer.encode(TEXT))
    assert "".join(pieces) == TEXT
    assert "\ufffd" not in "".join(pieces)


def test_ids_that_the_tokenizer_does_not_know_are_no_text(tokenizer):
    ids = tokenizer.encode(TEXT).tolist()
    unknown = [tokenizer.vocab_size, tokenizer.vocab_size + 40]
    strewn = [unknown[0], *(each for token in ids for each in (token, unknown[1]))]
    assert "".join(streamed(tokenizer, strewn)) == tokenizer.decode(strewn) == TEXT


def test_a_character_comes_with_its_last_byte():
    assert streamed(ByteTokenizer(), "é!".encode()) == ["", "é", "!", ""]


def test_bytes_that_are_no_character_become_the_replacement_character():
    assert "".join(streamed(ByteTokenizer(), b"a\xff\xffb\xe6\xa8")) == b"a\xff\xffb\xe6\xa8".decode(errors="replace")
    assert "".join(streamed(ByteTokenizer(), b"\xff" * 9 + b"a")).count("\ufffd") == 9
