"""One look for each method, the same in every figure: Okabe-Ito colours, and dashes and markers for black and white."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Style:
    """How a method is drawn."""

    colour: str
    dashes: Any
    marker: str


# The unrepaired model is black, and so its reference policies can be greys.
METHODS = {
    "before": Style("#000000", "-", "o"),
    "zero": Style("#D55E00", (0, (5, 1.6)), "s"),
    "state_passing": Style("#0072B2", "-", "^"),
    "tbtt": Style("#009E73", (0, (7, 1.6, 1.4, 1.6)), "D"),
    "fitted_noise": Style("#CC79A7", (0, (3, 1.2)), "v"),
    "random_noise": Style("#E69F00", (0, (1.2, 1.2)), "P"),
    "correlated_noise": Style("#56B4E9", (0, (7, 1.6, 1.4, 1.6, 1.4, 1.6)), "X"),
}
OTHERS = (
    Style("#0072B2", (0, (2.5, 1.2)), "<"),
    Style("#D55E00", (0, (7, 1.6, 1.4, 1.6)), ">"),
    Style("#009E73", (0, (1.2, 1.2)), "p"),
    Style("#CC79A7", "-", "h"),
    Style("#E69F00", "-", "d"),
    Style("#56B4E9", (0, (2.5, 1.2)), "H"),
    Style("#5f4b8b", (0, (7, 1.6, 1.4, 1.6)), "8"),
    Style("#8a6d3b", (0, (1.2, 1.2)), "*"),
)
RECENTRED = (0, (1, 1))
"""Dashes of a model that is recentred, in the model's own colour."""
PAPER = (
    Style("#8c8c8c", (0, (1, 1.4)), "1"),
    Style("#7a7a7a", (0, (3, 1.4)), "2"),
    Style("#686868", (0, (6, 1.4)), "3"),
    Style("#565656", (0, (9, 1.4, 1, 1.4)), "4"),
    Style("#444444", "-", "+"),
)
"""The paper's models, from the smallest, and last one of unknown size: greys, not to be taken for the run's models."""
RESTART = Style("#777777", (0, (1, 1.4)), "")
WINDOW_GREYS = ("#9a9a9a", "#8c8c8c", "#7e7e7e", "#707070", "#626262")
WINDOW_DASHES = ((0, (2, 1.5)), (0, (4, 1.5)), (0, (6, 1.5)), (0, (9, 1.5)), (0, (12, 1.5)))


def styles_of(labels: Iterable[str]) -> dict[str, Style]:
    """A look for each label: fixed for the known methods, by turns for any other."""
    labels = tuple(dict.fromkeys(labels))
    strangers = [label for label in labels if label not in METHODS]
    turns = {label: OTHERS[index % len(OTHERS)] for index, label in enumerate(strangers)}
    return {label: METHODS.get(label) or turns[label] for label in labels}


def window_style(index: int) -> Style:
    """The look of the reference window number ``index``, from the narrowest: ever longer dashes, ever darker."""
    index = min(index, len(WINDOW_GREYS) - 1)
    return Style(WINDOW_GREYS[index], WINDOW_DASHES[index], "")
