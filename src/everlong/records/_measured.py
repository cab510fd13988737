"""What a measurement of a model on held-out text rests on."""

from dataclasses import dataclass

from everlong.records._record import Record


@dataclass(frozen=True, kw_only=True)
class Measured(Record):
    """The model, the text, the seed, the machine."""

    label: str
    """before, or the method that made the model."""
    model: str
    architecture: str
    parameters: int
    context: int
    """The training length in tokens."""
    length: int
    """How far was read, in tokens."""
    documents: tuple[str, ...]
    """The held-out documents, in the order of the arrays' rows: the units of all intervals."""
    document_tokens: tuple[int, ...]
    """Tokens of each that could be read, the last one's target included."""
    offsets: tuple[int, ...]
    """Where in its document each row starts, in a state of zero; no begin, end or reset tokens are added."""
    data_fingerprint: str
    seed: int
    backend: str
    device: str
    dtype: str
    tokens_read: int
    seconds: float
