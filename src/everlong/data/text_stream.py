"""Text from token ids that come one by one: each character is given as soon as all of it is there."""

from everlong.data.tokenizers import Tokenizer

REPLACEMENT = "\ufffd"
LONGEST_CHARACTER = 4  # bytes of UTF-8, hence tokens that may wait for the rest of theirs


class TextStream:
    """Decodes ids as they come, in time that does not grow with their number.

    A token can hold a part of a character, so what ends in the middle of one waits. What can become none any more is
    given as the replacement character. Tokenizers may write a token otherwise at a text's beginning, so the tokens that
    were given last are decoded again before the new ones, and their text is taken off.

    Args:
        tokenizer: of the ids.
    """

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._given: list[int] = []  # decoded again, before those that wait
        self._waiting: list[int] = []

    def add(self, token: int) -> str:
        """The text that is complete with this token; it can be empty, and is where the tokenizer lacks the token."""
        if token >= self._tokenizer.vocab_size:
            return ""
        self._waiting.append(token)
        before = self._tokenizer.decode(self._given)
        text = self._tokenizer.decode(self._given + self._waiting)[len(before) :]
        if text.endswith(REPLACEMENT) and len(self._waiting) < LONGEST_CHARACTER:
            return ""
        self._given, self._waiting = self._waiting, []
        return text

    def end(self) -> str:
        """What still waits, half a character as the replacement character."""
        before = self._tokenizer.decode(self._given)
        text = self._tokenizer.decode(self._given + self._waiting)[len(before) :]
        self._given, self._waiting = [], []
        return text
