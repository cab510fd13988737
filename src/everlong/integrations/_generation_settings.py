"""What lm-evaluation-harness asks of a text that is written: its keys, in their usual meaning."""

from collections.abc import Mapping
from typing import Any

from everlong.errors import EverlongError
from everlong.models.config import SamplingConfig

MOST_NEW_TOKENS = 256  # where a task does not say
LENGTHS = ("max_gen_toks", "max_new_tokens")
KNOWN = (*LENGTHS, "do_sample", "num_beams", "temperature", "top_k", "top_p", "until")


class GenerationSettings:
    """The settings of one request.

    Args:
        given: ``max_gen_toks`` or ``max_new_tokens``; ``until``, a text or several; ``do_sample`` and ``temperature``
            (0: the likeliest token always); ``top_k`` (0: among all), ``top_p``; ``num_beams``, which can only be 1.

    Attributes:
        most: tokens to write at most.
        sampling: how they are chosen.

    Raises:
        EverlongError: a setting that is unknown, out of range or cannot be met.
    """

    def __init__(self, given: Mapping[str, Any]):
        unknown = sorted(set(given) - set(KNOWN))
        if unknown:
            raise EverlongError(
                f"generation setting {', '.join(unknown)} is unknown; known: {', '.join(sorted(KNOWN))}"
            )
        if given.get("num_beams") not in (None, 1):
            raise EverlongError(f"num_beams is {given['num_beams']}; it must be 1, beams are not searched here")
        lengths = {name: int(given[name]) for name in LENGTHS if given.get(name) is not None}
        if len(set(lengths.values())) > 1:
            words = " and ".join(f"{name} {value}" for name, value in lengths.items())
            raise EverlongError(f"{words} say the same thing differently: give one of them, or both alike")
        self.most = next(iter(lengths.values()), MOST_NEW_TOKENS)
        until = given.get("until") or []
        self._until = [text for text in ([until] if isinstance(until, str) else until) if text]
        self.sampling = SamplingConfig(
            temperature=_temperature(given.get("do_sample"), given.get("temperature")),
            top_k=given.get("top_k") or None,
            top_p=1.0 if given.get("top_p") is None else given["top_p"],
        )

    def stops(self, text: str) -> bool:
        """Whether a text holds a stop sequence."""
        return any(stop in text for stop in self._until)

    def cut(self, text: str) -> str:
        """The text before the first stop sequence."""
        return text[: min((text.index(stop) for stop in self._until if stop in text), default=len(text))]


def _temperature(do_sample: bool | None, temperature: float | None) -> float:
    if do_sample is None:
        return float(temperature or 0.0)
    return (1.0 if temperature is None else float(temperature)) if do_sample else 0.0
