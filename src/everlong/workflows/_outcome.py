"""What came of a repair: the table, the outcome in one sentence, the warnings."""

from collections.abc import Mapping

from everlong.diagnostics.comparison import BEFORE, CONTROL, HARMS, LEAST_HEADROOM, PAYS, compare, headroom
from everlong.records.diagnosis import Diagnosis
from everlong.records.repair import Repair, Row
from everlong.records.training import Training
from everlong.workflows._warnings import data_warnings

NAMES = {CONTROL: "the zero-start control"}


def summarize(diagnoses: Mapping[str, Diagnosis], trainings: Mapping[str, Training], proposal: str) -> Repair:
    """The table of all models, each against its own windows and the control's (before repair: its own)."""
    before, control = diagnoses[BEFORE], diagnoses[CONTROL]
    rows = tuple(compare(diagnosis, before if label == BEFORE else control) for label, diagnosis in diagnoses.items())
    room = headroom(control)
    seconds = {f"diagnosing {label}": diagnosis.seconds for label, diagnosis in diagnoses.items()}
    seconds |= {f"training {label}": training.seconds for label, training in trainings.items()}
    warnings = list(data_warnings(before))
    tight = [
        f"{rows[0].own.starts[i]:,}-{rows[0].own.stops[i]:,}" for i, gain in enumerate(room) if gain < LEAST_HEADROOM
    ]
    if tight:
        warnings.append(
            f"whether reading on pays cannot be tested at {', '.join(tight)} tokens: longer windows gain the control "
            f"less than {LEAST_HEADROOM} nats there."
        )
    return Repair(
        context=control.context,
        tolerance=control.verdict.tolerance,
        rows=rows,
        headroom=room,
        proposal=proposal,
        sentence=_sentence(rows),
        warnings=tuple(warnings),
        seconds=seconds,
    )


def _sentence(rows: tuple[Row, ...]) -> str:
    """The farthest range where the model was harmed before, and what the control and each repair leave of it."""
    before = rows[0]
    harmed = [i for i, meaning in enumerate(before.meaning) if meaning == HARMS]
    if not harmed:
        return "The model was not surely harmed by reading on, in any range: there was nothing to repair."
    parts = []
    for row in rows[1:]:
        left = [i for i in harmed if row.meaning[i] == HARMS]
        pays = [i for i in harmed if row.meaning[i] == PAYS]
        last = harmed[-1]
        share = 1 - row.own.mean[last] / before.own.mean[last]
        taken = f"{share:.0%} taken away" if share > 0 else "nothing taken away"
        words = "still harms" if left else "pays" if pays == harmed else "no longer surely harms"
        parts.append(
            f"after {NAMES.get(row.label, row.label.replace('_', ' '))} it is {row.own.mean[last]:+.3f} ({taken}; "
            f"reading on {words}, "
            f"in-range perplexity {row.in_range_perplexity / before.in_range_perplexity - 1:+.1%})"
        )
    reach = f"{before.own.starts[harmed[-1]]:,}-{before.own.stops[harmed[-1]]:,}"
    return f"At {reach} tokens the excess was {before.own.mean[harmed[-1]]:+.3f} nats; {'; '.join(parts)}."
