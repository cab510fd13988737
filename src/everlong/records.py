"""Typed records of everything that was measured: JSON to read, arrays in .npz beside it. Free of torch.

Positions count the tokens read before the target; a bucket (start, stop] holds start < t <= stop. Losses are in nats.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import cattrs
import numpy as np

from everlong import measurements, sweeps  # noqa: F401  (their records are known to load_record)
from everlong._record import Record
from everlong.errors import EverlongError

Meaning = Literal["reading on harms", "no better than restarting", "pays", "undecided"]


@dataclass(frozen=True, kw_only=True)
class Excess(Record):
    """Paired excess loss by position bucket: the carried state's loss minus a reference's, over the same targets."""

    reference: str
    """What the carried state is compared with, in words."""
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    mean: tuple[float, ...]
    """Nats a target; not-a-number where no document reaches."""
    lower: tuple[float, ...]
    """Lower ends of simultaneous intervals; not-a-number below two documents."""
    upper: tuple[float, ...]
    documents: tuple[int, ...]
    """Documents in the bucket: the units of the intervals."""
    targets: tuple[int, ...]
    confidence: float
    interval: str
    """How the intervals were made."""


@dataclass(frozen=True, kw_only=True)
class Verdict(Record):
    """How far the model really reads, by paired excess loss, and Def. 3.2 on perplexity beside it."""

    outcome: Literal["breaks", "holds", "undecided"]
    position: int | None
    """Breaks at, or holds to, this many tokens."""
    uses_to: int | None
    """The last position whose bucket's whole interval lies below zero: so far the model gains by what it carries."""
    sentence: str
    """The verdict in words."""
    definition_3_2: str
    """The paper's Def. 3.2 on position-wise perplexity, in words."""
    tolerance: float
    """Excess in nats that does not count as harm."""
    confidence: float
    documents: int
    fewest_documents: int
    """A bucket with fewer is not judged."""

    @property
    def short(self) -> str:
        """The outcome in two or three words."""
        words = {"breaks": "breaks at", "holds": "holds to", "undecided": "undecided"}[self.outcome]
        return words if self.position is None else f"{words} {self.position:,}"


@dataclass(frozen=True, kw_only=True)
class Curve(Record):
    """Loss against position under one policy, for each document of a fixed panel (all as long as the length)."""

    policy: str
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    losses: np.ndarray
    """[documents, buckets], mean nats over the positions of a bucket."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis(Record):
    """Everything measured on one model: losses by document and bucket under each policy, curves, verdict, settings."""

    label: str
    """before, or the method that made the model."""
    model: str
    architecture: str
    parameters: int
    context: int
    """The training length in tokens."""
    length: int
    """The diagnosed length in tokens."""
    documents: tuple[str, ...]
    """The held-out documents, in the order of the arrays' rows."""
    document_tokens: tuple[int, ...]
    """Tokens read of each document."""
    offsets: tuple[int, ...]
    """Where in its document each row starts."""
    data_fingerprint: str
    bucket_starts: tuple[int, ...]
    bucket_stops: tuple[int, ...]
    targets: np.ndarray
    """[documents, buckets], targets scored."""
    losses: dict[str, np.ndarray]
    """Reading policy -> [documents, buckets], mean nats over the same targets; windows are named "window:WIDTH"."""
    curves: tuple[Curve, ...]
    in_range_losses: np.ndarray
    """[documents], mean nats of the training length read from the zero state, over all chunks of the document."""
    excess: Excess
    """Against the model's own window of the training length."""
    verdict: Verdict
    window_share: int
    """Of a window, the last width / window_share targets were scored."""
    seed: int
    backend: str
    device: str
    dtype: str
    seconds: float
    tokens_read: int

    @property
    def in_range_perplexity(self) -> float:
        """Exp of the mean in-range loss."""
        return float(np.exp(np.nanmean(self.in_range_losses)))

    @property
    def window_widths(self) -> tuple[int, ...]:
        """Widths of the windows measured, ascending."""
        return tuple(sorted(int(name.split(":")[1]) for name in self.losses if name.startswith("window:")))

    @property
    def judged_documents(self) -> int:
        """Documents that reach beyond the training length."""
        return int((self.targets[:, 1:].sum(axis=1) > 0).sum())


@dataclass(frozen=True, kw_only=True)
class Exposure(Record):
    """How often training met old states: scored tokens by age, each weighted by its learning rate over the peak's."""

    ages: tuple[int, ...]
    """Tokens since the state was zero."""
    tokens: tuple[float, ...]
    """For each age, weighted tokens at least so old."""
    scored_tokens: int
    """All scored tokens, unweighted."""


@dataclass(frozen=True, kw_only=True)
class Training(Record):
    """What one arm of training did."""

    method: str
    context: int
    """Tokens a row, without a prefix that is read without loss."""
    settings: dict[str, Any]
    """Of training and of its intervention, and data_order, in which the rows came."""
    steps: int
    scored_tokens: int
    read_tokens: int
    first_loss: float
    final_loss: float
    """Means of the first and last tenth of the steps."""
    exposure: Exposure
    backend: str
    seconds: float
    model_folder: str
    skipped_steps: int = 0
    """Steps left out because something in them was not finite."""
    processes: int = 1
    """That shared the work at its end."""
    intervention: dict[str, Any] = field(default_factory=dict)
    """What the intervention did, in numbers: of the last step where they change from step to step."""


@dataclass(frozen=True, kw_only=True)
class Row(Record):
    """One model in the table of a repair."""

    label: str
    in_range_perplexity: float
    own: Excess
    """Against its own window of the training length."""
    own_best: Excess
    """Against its own best window, of any width."""
    control: Excess
    """Against the zero control's window of the training length (before repair: its own)."""
    control_best: Excess
    """Against the zero control's best window, of any width."""
    meaning: tuple[Meaning, ...]
    """For each range."""
    verdict: str


@dataclass(frozen=True, kw_only=True)
class Repair(Record):
    """The repair as a whole: the table, and how it was decided."""

    context: int
    """The training length in tokens."""
    tolerance: float
    """Excess in nats that does not count as harm."""
    rows: tuple[Row, ...]
    headroom: tuple[float, ...]
    """For each range, nats that the control gains by its best longer window over its window of the training length."""
    proposal: str
    """How the reset probability and the steps were chosen, in words."""
    sentence: str
    """The outcome in one sentence."""
    warnings: tuple[str, ...]
    seconds: dict[str, float]
    """Phase -> wall-clock seconds."""


@dataclass(frozen=True, kw_only=True)
class Overview(Record):
    """A diagnosis of one model or several as a whole: what was asked, and what came of it. The last record of a run."""

    labels: tuple[str, ...]
    """Of the models, in the order in which they were given."""
    measures: tuple[str, ...]
    """Asked for, beside the diagnosis itself."""
    sentence: str
    """The verdict on all models in one sentence."""
    warnings: tuple[str, ...]
    """What a reader must know: too few documents, measures that could not be made, and why."""
    fail_above: float | None
    """Nats of paired excess; None: no bound was asked for."""
    exceeded: tuple[str, ...]
    """The buckets that surely exceed that bound, in words."""
    seconds: dict[str, float]
    """Phase -> wall-clock seconds."""


@dataclass(frozen=True, kw_only=True)
class MeanOverBases(Record):
    """Means over bases, one for each range of positions, with simultaneous intervals."""

    mean: tuple[float, ...]
    lower: tuple[float, ...]
    """Lower ends; not-a-number below two bases."""
    upper: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class ExperimentArm(Record):
    """One arm over all bases: before repair, the control, or a repair."""

    label: str
    excess: np.ndarray
    """[bases, seeds, ranges], nats against the model's own window of the training length."""
    harms: np.ndarray
    """[bases, seeds, ranges], whether reading on surely harms, by the documents' interval."""
    in_range_perplexity: np.ndarray
    """[bases, seeds]."""
    over_bases: MeanOverBases
    """Of the excess, in nats; the seeds of a base are averaged first."""
    over_control: MeanOverBases
    """Of the excess minus the control's from the same base, in nats."""
    taken_away: tuple[float, ...]
    """For each range, the share of the excess before that is gone, the mean over the bases that were harmed there."""
    repaired: tuple[int, ...]
    """For each range, how many of the harmed bases have lost nine tenths of their excess or more."""
    freed: tuple[int, ...]
    """For each range, how many of the harmed bases reading on surely harms under no seed any more."""


@dataclass(frozen=True, kw_only=True)
class Contrast(Record):
    """The excess after one arm minus that after another, from the same bases, in nats."""

    first: str
    second: str
    difference: MeanOverBases


@dataclass(frozen=True, kw_only=True)
class Experiment(Record):
    """All arms from several bases: bases are the replicates, and the arms are paired on them."""

    context: int
    """The training length in tokens."""
    tolerance: float
    bases: tuple[str, ...]
    seeds: tuple[int, ...]
    """Of the order of batches and of what is drawn, under each base."""
    runs: tuple[str, ...]
    """The repairs, base by base and seed by seed: folders within this run."""
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    harmed: tuple[int, ...]
    """For each range, how many bases reading on surely harmed before."""
    arms: tuple[ExperimentArm, ...]
    contrasts: tuple[Contrast, ...]
    """Every pair of arms."""
    confidence: float
    interval: str
    """How the intervals were made."""
    proposal: str
    sentence: str
    seconds: dict[str, float]
    """Phase -> wall-clock seconds."""


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
class Doctor(Record):
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
class Conversion(Record):
    """A model written in another format, and the proof that it is the same model."""

    source: str
    source_format: str
    target: str
    target_format: str
    architecture: str
    parameters: int
    checks: tuple[Check, ...]
    rows: int
    length: int
    """Random tokens read: rows x length."""
    seed: int
    backend: str
    device: str
    dtype: str
    """What was written."""
    seconds: float

    @property
    def wrong(self) -> tuple[Check, ...]:
        """The checks that failed."""
        return tuple(check for check in self.checks if not check.ok)


@dataclass(frozen=True, kw_only=True)
class Score(Record):
    """A mean over examples, with its interval."""

    mean: float
    lower: float
    upper: float


@dataclass(frozen=True, kw_only=True)
class TaskCell(Record):
    """A model on one cell of a task's grid."""

    task: str
    parameters: dict[str, Any]
    """Length, depth, question, ...: what the examples have in common."""
    examples: int
    tokens_read: int
    """Of all prompts together."""
    scores: dict[str, Score]
    """Measure -> its mean; the first measure is the one that counts. Wilson's interval where a score is right or wrong,
    else Student's t. ``nats`` is the loss a token of the answer."""
    floors: dict[str, float]
    """What guessing scores by the first measure: by chance, and by the best constant answer."""
    values: dict[str, np.ndarray]
    """Measure -> [examples]."""
    notes: tuple[str, ...]
    """What a reader of the scores must know."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TaskEvaluation(Record):
    """A model on all cells of a task's grid."""

    task: str
    measures: tuple[str, ...]
    length_is: str
    """What a cell's length counts."""
    settings: dict[str, Any]
    model: str
    architecture: str
    parameters: int
    context: int | None
    """The training length in tokens; None: not known."""
    tokenizer: str
    cells: tuple[TaskCell, ...]
    confidence: float
    seed: int
    backend: str
    device: str
    dtype: str
    seconds: float


def save_record(record: Record, path: Path) -> None:
    """Writes ``path`` (JSON) and, where the record has arrays, a .npz beside it; the JSON appears last, and whole."""
    arrays: dict[str, np.ndarray] = {}

    def set_aside(array: np.ndarray) -> dict[str, str]:
        name = f"array_{len(arrays)}"
        arrays[name] = array
        return {"npz": name}

    converter = cattrs.Converter()
    converter.register_unstructure_hook(np.ndarray, set_aside)
    content = {"record": type(record).__name__, **converter.unstructure(record)}
    path.parent.mkdir(parents=True, exist_ok=True)
    if arrays:
        np.savez_compressed(path.with_suffix(".npz"), allow_pickle=False, **arrays)
    temporary = path.with_name(f".{path.name}")
    try:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def load_record(path: Path) -> Any:
    """Reads a record back, arrays included, as the type that it was written from.

    Raises:
        EverlongError: the file is missing, torn, or no record.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        kind = {cls.__name__: cls for cls in Record.__subclasses__()}[content.pop("record")]
        arrays = _arrays(path.with_suffix(".npz"))
        converter = cattrs.Converter()
        converter.register_structure_hook(np.ndarray, lambda value, _: arrays[value["npz"]])
        return converter.structure(content, kind)
    except FileNotFoundError:
        raise EverlongError(f"no record at {path}") from None
    except Exception as error:
        raise EverlongError(f"{path} is no readable record: {error!r}") from None


def _arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        return {}
    with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)
