"""The verdict: how far the model really reads, on paired excess loss with its interval."""

import numpy as np

from everlong.diagnostics.config import DiagnosisConfig
from everlong.diagnostics.position_loss import definition_3_2
from everlong.records.diagnosis import Curve, Excess, Verdict

FEWEST_DOCUMENTS = 8  # a bucket with fewer is not judged
LEAST_GAIN = 0.001  # nats: an untrained model "gains" 3e-5, and surely so; that is no use of memory


def judge(excess: Excess, octaves: Curve, config: DiagnosisConfig, *, context: int, seed: int) -> Verdict:
    """Judges the excess against the model's own window of the training length.

    A bucket harms when the lower end of its interval is above the tolerance. Breaks at N: N is where the first of two
    neighbouring harming buckets begins. Holds to N: every upper end up to N, the diagnosed length, is within the
    tolerance. Otherwise undecided. Buckets with fewer than 8 documents are not judged.
    """
    lower, upper = np.array(excess.lower), np.array(excess.upper)
    beyond = np.arange(len(lower)) > 0  # the first bucket lies within the training length: zero by construction
    judged = (np.array(excess.documents) >= FEWEST_DOCUMENTS) & beyond
    harms = judged & (lower > config.tolerance)
    within = judged & (upper <= config.tolerance)
    uses = judged & (upper < -LEAST_GAIN)
    documents = max(excess.documents)
    broken = [i for i in range(len(harms) - 1) if harms[i] and harms[i + 1]]
    sure = f"({excess.confidence:.0%} sure, tolerance {config.tolerance:g} nats, {documents} documents)"
    if broken:
        outcome, position = "breaks", excess.starts[broken[0]]
        worst = int(np.nanargmax(np.where(judged, excess.mean, -np.inf)))
        sentence = (
            f"Breaks at {position:,} tokens: beyond, reading on is worse than forgetting, by up to "
            f"{excess.mean[worst]:+.2f} nats a token at {excess.starts[worst]:,}-{excess.stops[worst]:,} {sure}."
        )
    elif judged[1:].all() and within[1:].all():
        outcome, position = "holds", excess.stops[-1]
        sentence = f"Holds to {position:,} tokens {sure}."
    else:
        outcome, position = "undecided", None
        sentence = _why_undecided(excess, judged, harms, within)
    uses_to = int(np.array(excess.stops)[uses].max()) if uses.any() else None
    if outcome == "holds":
        sentence += (
            f" It gains by what it carries up to {uses_to:,} tokens."
            if uses_to
            else " It does not gain by what it carries: restarting every training length would do as well."
        )
    return Verdict(
        outcome=outcome,
        position=position,
        uses_to=uses_to,
        sentence=sentence,
        definition_3_2=definition_3_2(
            octaves, context=context, tolerance=config.tolerance, confidence=config.confidence, seed=seed
        ),
        tolerance=config.tolerance,
        confidence=config.confidence,
        documents=documents,
        fewest_documents=FEWEST_DOCUMENTS,
    )


def _why_undecided(excess: Excess, judged: np.ndarray, harms: np.ndarray, within: np.ndarray) -> str:
    beyond = range(1, len(judged))
    few = [i for i in beyond if not judged[i]]
    if few:
        return (
            f"Undecided, more documents needed: only {excess.documents[few[0]]} documents reach "
            f"{excess.starts[few[0]]:,}-{excess.stops[few[0]]:,} tokens, {FEWEST_DOCUMENTS} are needed."
        )
    held = [excess.stops[i] for i in beyond if within[1 : i + 1].all()]
    first = next(i for i in beyond if not within[i])
    text = f"Undecided, more documents needed: at {excess.starts[first]:,}-{excess.stops[first]:,} tokens the "
    text += f"excess is {excess.mean[first]:+.3f} nats, interval {_interval(excess, first)}"
    text += ", harmful in this range alone" if harms[first] else ""
    return text + (f"; it holds to {held[-1]:,}." if held else ".")


def _interval(excess: Excess, index: int) -> str:
    return f"[{excess.lower[index]:+.3f}, {excess.upper[index]:+.3f}]"
