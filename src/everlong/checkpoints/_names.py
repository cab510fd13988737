"""Tensor names from ours to a format's and back, by prefixes."""

import re
from collections.abc import Mapping


class NameTable:
    """A table of prefixes, ours -> theirs; "{}" stands for a layer's number, and the longest prefix that fits counts.

    A name that no prefix fits stays as it is.
    """

    def __init__(self, table: Mapping[str, str]):
        self._outward = dict(table)
        self._inward = {theirs: ours for ours, theirs in table.items()}

    def theirs(self, name: str) -> str:
        """The format's name of one of our tensors."""
        return _exchange(name, self._outward)

    def ours(self, name: str) -> str:
        """Our name of one of the format's tensors."""
        return _exchange(name, self._inward)


def _exchange(name: str, table: Mapping[str, str]) -> str:
    number = re.search(r"(?<=\.)\d+(?=\.)", name)  # the layer: the first number of a name
    layer = number[0] if number else ""
    general = f"{name[: number.start()]}{{}}{name[number.end() :]}" if number else name
    fitting = [(prefix, form) for prefix in table for form in (name, general) if form.startswith(prefix)]
    if not fitting:
        return name
    prefix, form = max(fitting, key=lambda pair: len(pair[0]))
    return (table[prefix] + form[len(prefix) :]).replace("{}", layer)
