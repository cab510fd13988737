"""Records of an inspection: what a model is, where each number was read, whether it keeps the contract here."""

from dataclasses import dataclass

from everlong.records._record import Record


@dataclass(frozen=True, kw_only=True)
class Check(Record):
    """One thing that was held against a bound."""

    name: str
    ok: bool
    words: str
    """What was seen."""
    value: float | None = None
    """What was measured; None: the check is one of words alone."""
    bound: float | None = None
    """The largest value that is well."""
    unit: str = ""
    position: int | None = None
    """Tokens read when the value was first above the bound; None: never, or it is no matter of position."""


@dataclass(frozen=True, kw_only=True)
class Checked(Record):
    """What was held against bounds by running it on random tokens."""

    checks: tuple[Check, ...]
    rows: int
    length: int
    """Random tokens read: rows x length, by every check."""
    seed: int
    backend: str
    device: str
    dtype: str
    seconds: float

    @property
    def wrong(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if not check.ok)


@dataclass(frozen=True, kw_only=True)
class Fact(Record):
    """Something known of a model, and where it was read."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Backend(Record):
    """A backend of the model's recurrence."""

    name: str
    reason: str | None
    """Why it cannot serve here; None: it can."""
    chosen: bool
    why: str = ""
    """Why it was chosen."""


@dataclass(frozen=True, kw_only=True)
class StateLeaf(Record):
    """A leaf of the state that a number of layers have alike."""

    name: str
    role: str
    shape: tuple[int, ...]
    """Without the batch axis."""
    dtype: str
    layers: int
    bytes: int
    """Of one row, over all these layers."""


@dataclass(frozen=True, kw_only=True)
class Doctor(Checked):
    """What was found in a model by opening it and running it on random tokens."""

    model: str
    format: str
    architecture: str
    parameters: int
    context: int | None
    """The training length in tokens; None: not known."""
    facts: tuple[Fact, ...]
    backends: tuple[Backend, ...]
    state: tuple[StateLeaf, ...]
