"""BABILong's rule of scoring (github.com/booydar/babilong, babilong/metrics.py), and the same rule by whole words."""

import re
from collections.abc import Callable, Iterable

PLACES = ("bathroom", "bedroom", "garden", "hallway", "kitchen", "office")
LABELS = {
    "qa1": PLACES,
    "qa2": PLACES,
    "qa3": PLACES,
    "qa4": PLACES,
    "qa5": ("Bill", "Fred", "Jeff", "Mary", "apple", "football", "milk"),
    "qa6": ("no", "yes"),
    "qa7": ("none", "one", "three", "two"),
    "qa8": ("apple", "football", "milk", "nothing"),
    "qa9": ("no", "yes"),
    "qa10": ("maybe", "no", "yes"),
}


def named(task: str, output: str, question: str, *, words: bool) -> frozenset[str]:
    """The task's labels that an output names, but for those in the question; lower case.

    The output counts to its first full stop, and to where a model begins another example: by words at "question",
    too. The official code looks for "Question" there, in a text that it has put in lower case before, hence never cuts.

    Args:
        task: qa1 to qa10.
        output: what the model wrote.
        question: what was asked.
        words: labels are whole words. The official rule takes any place: there "none" names "one", too, so that of
            qa7's answers "none" can never be right.
    """
    output = output.lower().split(".")[0].split("<context>")[0].split("<example>")[0]
    if words:
        output = output.split("question")[0]
    labels = [label.lower() for label in LABELS[task]]
    holds: Callable[[str, str], bool] = _as_word if words else _anywhere
    return frozenset(label for label in labels if holds(label, output) and not holds(label, question.lower()))


def right(target: str, found: Iterable[str]) -> bool:
    """Whether exactly the target is named; a list of several things (qa8) is right in any order."""
    return frozenset(target.lower().split(",")) == frozenset(found)


def _anywhere(label: str, text: str) -> bool:
    return label in text


def _as_word(label: str, text: str) -> bool:
    return re.search(rf"\b{label}\b", text) is not None
