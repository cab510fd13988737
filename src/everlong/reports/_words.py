"""Numbers and meanings as a person reads them: the same words in the terminal and on the page."""

import math
from dataclasses import dataclass

METHOD_NAMES = {
    "before": "Before repair",
    "zero": "Zero start (control)",
    "state_passing": "State passing",
    "tbtt": "TBTT",
    "burn_in": "Burn-in (control)",
    "correlated_noise": "Correlated noise",
    "fitted_noise": "Fitted noise",
    "longer_context": "Longer context (control)",
    "random_noise": "Random noise",
}


@dataclass(frozen=True)
class Meaning:
    """What an excess says. ``symbol`` and ``words`` carry it without colour."""

    kind: str
    symbol: str
    words: str


def method_name(label: str) -> str:
    """The name of a method, or of a model, for people; never empty, and never hidden from a legend by an underscore.

    An arm goes by its method and what was set: Correlated noise, rank=0.
    """
    method, *settings = label.split(",")
    name = METHOD_NAMES.get(method) or method.replace("_", " ").strip() or "unnamed"
    return ", ".join([name, *(setting.replace("_", " ") for setting in settings)])


def meaning_of(words: str) -> Meaning:
    """Gives the words of a record their kind, by which they are coloured, and their symbol."""
    for kind, symbol, sign in (("harms", "▲", "harm"), ("pays", "▼", "pay"), ("even", "=", "no better")):
        if sign in words:
            return Meaning(kind, symbol, words)
    return Meaning("open", "?", words)


NOT_JUDGED = Meaning("open", "?", "too few documents")


def bucket_meaning(lower: float, upper: float, tolerance: float) -> Meaning:
    """What one interval of the excess over a window says, by the rule of the verdict."""
    if lower > tolerance:
        return Meaning("harms", "▲", "harms")
    if upper < 0:
        return Meaning("pays", "▼", "gains")
    if upper <= tolerance:
        return Meaning("even", "=", "within tolerance")
    return Meaning("open", "?", "undecided")


def signed(value: float) -> str:
    """Nats with a sign: +0.292."""
    if math.isnan(value):
        return "n/a"
    text = f"{value:+.3f}"
    return "0.000" if float(text) == 0 else text


def interval(lower: float, upper: float) -> str:
    """[+0.250,+0.330], in one piece, so that a narrow column breaks before it and not inside."""
    return "" if math.isnan(lower) or math.isnan(upper) else f"[{signed(lower)},{signed(upper)}]"


def estimate(mean: float, lower: float, upper: float) -> str:
    """A mean and its interval."""
    return f"{signed(mean)} {interval(lower, upper)}".rstrip()


def positions(start: int, stop: int) -> str:
    """The positions after ``start``, up to ``stop``."""
    return f"{start:,}-{stop:,}"


def plural(number: int, noun: str) -> str:
    """1 document, 2 documents."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 1:
        return "under 1 s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


def policy_name(policy: str, context: int) -> str:
    """A reading policy in words."""
    if policy.startswith("window:"):
        return f"window of {int(policy.split(':')[1]):,}"
    return {"carry": "carry", "restart": f"restart every {context:,}"}.get(policy, policy.replace("_", " "))
