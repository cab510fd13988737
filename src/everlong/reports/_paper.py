"""The paper's own curves: read off its authors' published figures by pixel tracking, and so approximate.

Buitrago Ruiz & Gu 2025, from the figures on the authors' page (goombalab.github.io); no tables were published. The file
beside says how far to trust each.
"""

import json
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

CONTEXT = 2048
"""Tokens at a time that the paper's models were trained at."""
SIZES: tuple[str, ...] = ("130m", "370m", "780m", "1.3b")


@dataclass(frozen=True)
class PaperCurve:
    """One curve; ``t`` in tokens, values not-a-number where it leaves the figure or could not be read.

    Attributes:
        figure: perplexity (Fig. 1), effective_remembrance (Fig. 1, T = 8,192) or state_std (Fig. 4).
        name: the size and arm: "370m base", "370m SP" (state passing).
    """

    figure: str
    name: str
    t: np.ndarray
    values: np.ndarray


def paper_curves() -> tuple[PaperCurve, ...]:
    """All curves that a diagnosis can be drawn beside."""
    content = json.loads((files("everlong.reports") / "paper-figures.json").read_text(encoding="utf-8"))
    sources = {"perplexity": "fig1b_mamba2_ppl", "effective_remembrance": "fig1e_effrem_T8192"}
    found = []
    for figure, source in sources.items():
        table = content[source]
        for size in SIZES:
            for arm in ("base", "SP"):
                found.append(PaperCurve(figure, f"{size} {arm}", *_numbers(table["t"], table[f"{size}_{arm}"])))
    table = content["fig4_full_state_std"]
    return (
        *found,
        *(PaperCurve("state_std", arm, *_numbers(table["t"], table[arm])) for arm in ("base", "SP")),
    )


def _numbers(t: list, values: list) -> tuple[np.ndarray, np.ndarray]:
    """Null and bounds such as ">=23" are no values."""
    numbers = [value if isinstance(value, int | float) else np.nan for value in values]
    return np.array(t, dtype=float), np.array(numbers, dtype=float)
