"""What a reader of the figures must know of the data that they rest on."""

from everlong.diagnostics.verdict import FEWEST_DOCUMENTS
from everlong.records.diagnosis import Diagnosis


def data_warnings(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Warnings about too few or too short documents."""
    warnings = []
    excess = diagnosis.excess
    thin = [i for i in range(1, len(excess.documents)) if excess.documents[i] < FEWEST_DOCUMENTS]
    if thin:
        first = thin[0]
        warnings.append(
            f"only {excess.documents[first]} held-out documents reach {excess.starts[first]:,}-{excess.stops[first]:,} "
            f"tokens; a verdict needs {FEWEST_DOCUMENTS} in every range: undecided from there. Give more or longer "
            "documents."
        )
    full = sum(tokens == diagnosis.length + 1 for tokens in diagnosis.document_tokens)
    if full < len(diagnosis.documents):
        warnings.append(
            f"{full} of {len(diagnosis.documents)} documents are as long as the diagnosed {diagnosis.length:,} tokens; "
            "curves over position are of these alone."
        )
    return tuple(warnings)
