"""The verbs' configurations, free of torch. A field is a flag; its docstring is the flag's help."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

from everlong.checkpoints._bundled import BUNDLED
from everlong.data.config import DataConfig
from everlong.diagnostics.config import DiagnosisConfig, MeasuresConfig
from everlong.diagnostics.measures import MEASURES, QUICK_MEASURES
from everlong.errors import EverlongError
from everlong.interventions.arms import describe_methods
from everlong.models.config import GLAConfig, Mamba1Config, Mamba2Config, RWKV6Config, SamplingConfig
from everlong.tasks.config import TasksConfig, parse_length
from everlong.training.config import EngineConfig, TrainingConfig

Model = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]
Models = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[MODEL ...]")]
Architecture = (
    Annotated[GLAConfig, tyro.conf.subcommand("gla")]
    | Annotated[Mamba1Config, tyro.conf.subcommand("mamba1")]
    | Annotated[Mamba2Config, tyro.conf.subcommand("mamba2")]
    | Annotated[RWKV6Config, tyro.conf.subcommand("rwkv6")]
)
METHODS_HELP = (
    "How to repair, one arm each: METHOD or METHOD,setting=value,... (random_noise,scale=0.3). The control, zero, is "
    f"added to them. Methods and their settings: {describe_methods()}."
)
METHOD_HELP = (
    "What rows start from: METHOD or METHOD,setting=value,... (state_passing,reset_probability=0.05). Methods and "
    f"their settings: {describe_methods()}."
)

MEASURES_HELP = (
    f"What to measure beside loss by position: {', '.join(MEASURES)}; or all, none, or default, which is all, with "
    f"--quick {' and '.join(QUICK_MEASURES)}."
)


@dataclass(frozen=True, kw_only=True)
class MachineConfig:
    """Where and how to compute: the flags that all verbs have."""

    device: str | None = None
    """Where to compute: cpu, cuda, cuda:1, ... Default: the best there is."""
    dtype: Literal["float32", "bfloat16", "float64"] | None = None
    """Precision of the weights and activations (states are float32 at least). Default: float32."""
    seed: int = 0
    """Of everything that is drawn, 0 or more."""
    backend: str = "auto"
    """How the recurrences are computed: auto, chunked, cpu, reference."""

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise EverlongError(f"--seed {self.seed} is below 0")


@dataclass(frozen=True, kw_only=True)
class RuntimeConfig(MachineConfig):
    """Where and how to run: the flags of all verbs that have a run folder."""

    output: str | None = None
    """The run folder, which must not exist. Default: runs/VERB-TIME."""
    resume: str | None = None
    """Go on with this run folder, with the settings that it was started with. Beside it none may be given but those of
    the engine, where the verb has them (--on-nonfinite, --checkpoint-every, ...); a line says what changes."""


@dataclass(frozen=True, kw_only=True)
class DiagnoseConfig:
    """How far can the model really read, why no farther, and how sure is that?

    Several models, one before and one after a repair, say, are measured on the same text and drawn on the same axes.
    """

    models: Models = (BUNDLED,)
    """Folders or files (state-spaces, transformers or Everlong format), hub ids owner/name, or "bundled"."""
    context: int | None = None
    """Tokens at a time that the models were trained at. Default: each model's own record."""
    measures: Annotated[tuple[str, ...], tyro.conf.arg(help=MEASURES_HELP)] = ("default",)
    fail_above: float | None = None
    """For tests: exit code 1 where the paired excess loss of any model surely exceeds so many nats a token in any
    bucket, which is where the lower end of its interval does. Buckets with fewer than 8 documents are not judged."""
    data: DataConfig = field(default_factory=DataConfig)
    diagnosis: DiagnosisConfig = field(default_factory=DiagnosisConfig)
    measuring: MeasuresConfig = field(default_factory=MeasuresConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)

    def __post_init__(self) -> None:
        if not self.models:
            raise EverlongError("no MODEL is given: name a folder, a file or a hub id, or leave it out for the bundled")
        if self.fail_above is not None and not self.fail_above >= 0:
            raise EverlongError(f"--fail-above {self.fail_above} must be 0 or more (nats a token)")
        self.chosen_measures  # noqa: B018  (an unknown name is refused before any work)

    @property
    def chosen_measures(self) -> tuple[str, ...]:
        """The measures to make, in the order of the registry.

        Raises:
            EverlongError: an unknown name.
        """
        sets = {"all": tuple(MEASURES), "none": (), "default": QUICK_MEASURES if self.diagnosis.quick else MEASURES}
        chosen: set[str] = set()
        for name in self.measures:
            if name not in sets and name not in MEASURES:
                known = ", ".join((*sets, *MEASURES))
                raise EverlongError(f"--measures {name}: no such measure; known: {known}")
            chosen |= set(sets.get(name, (name,)))
        return tuple(name for name in MEASURES if name in chosen)


@dataclass(frozen=True, kw_only=True)
class RepairConfig:
    """Diagnose a model, repair it with a few hundred short-context steps, and prove the repair.

    The zero-start control is always run at the same budget: it says how much of a gain is only more training.
    """

    model: Model = BUNDLED
    """A folder or file (state-spaces, transformers or Everlong format), a hub id owner/name, or "bundled"."""
    bases: tuple[str, ...] = ()
    """An experiment over several models instead of MODEL: their folders, or a number N, and N are trained first by the
    bundled model's recipe (the defaults of `everlong train`), with seeds from --seed on. Bases are the replicates."""
    seeds: int = 1
    """Repairs of each base, with seeds from --seed on: of the order of batches and of all that is drawn."""
    context: int | None = None
    """Tokens at a time that the model was trained at; the repair keeps to it. Default: the model's own record."""
    methods: Annotated[tuple[str, ...], tyro.conf.arg(help=METHODS_HELP)] = ("state_passing",)
    reach: int | None = None
    """How far the repair should carry, in tokens; proposes the reset probability and the steps. Default: max_length."""
    reset_probability: float | None = None
    """The share of rows that start from zero all the same, equal in all arms that do not set their own. Default:
    proposed by the reach."""
    steps: int | None = None
    """Optimizer steps of each method. Default: proposed by the reach."""
    batch_size: int = 64
    """Rows of one training context in a step."""
    learning_rate: float = 3e-4
    """Peak of the schedule: about a tenth of the one that the model was trained with."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    data: DataConfig = field(default_factory=DataConfig)
    diagnosis: DiagnosisConfig = field(default_factory=DiagnosisConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)

    def __post_init__(self) -> None:
        if self.bases and self.model != BUNDLED:
            raise EverlongError(f"MODEL {self.model} beside --bases {' '.join(self.bases)}: name all models in --bases")
        for name in ("reach", "steps", "batch_size", "seeds"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise EverlongError(f"--{name.replace('_', '-')} {value} is too small; it must be at least 1")
        if self.reset_probability is not None and not 0 <= self.reset_probability <= 1:
            raise EverlongError(f"--reset-probability {self.reset_probability} must lie between 0 and 1")
        if self.learning_rate <= 0:
            raise EverlongError(f"--learning-rate {self.learning_rate} must be above 0")
        if self.base_count == 0:
            raise EverlongError("--bases 0 leaves nothing to repair; give 1 or more, or folders of models")

    @property
    def is_experiment(self) -> bool:
        """Whether it asks for several bases or seeds."""
        return bool(self.bases) or self.seeds > 1

    @property
    def base_count(self) -> int | None:
        """How many bases are to be trained; None: none, they are there."""
        return int(self.bases[0]) if len(self.bases) == 1 and self.bases[0].isdecimal() else None


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Train a model: from scratch, or on from another, on text or on a task.

    The defaults are the bundled model's recipe: Mamba-2 with planted slow decays on the standard library's sources.
    `everlong train --start MODEL --task passkey --method fitted_noise --learning-rate 3e-4` fine-tunes a model.

    An architecture and its settings come last: `everlong train --context 128 gla --d-model 128 --n-layer 4`.
    """

    model: Architecture = field(
        default_factory=lambda: Mamba2Config(
            vocab_size=256,
            d_model=128,
            n_layer=4,
            d_state=64,
            headdim=32,
            A_init="log_spaced",
            A_init_range=(0.01, 1.0),
        )
    )
    start: str | None = None
    """Go on from this model, a MODEL as of other verbs; its architecture and format are kept. Default: from scratch."""
    context: int | None = None
    """Training length in tokens. Default: the --start model's own; from scratch 64."""
    method: Annotated[str, tyro.conf.arg(help=METHOD_HELP)] = "zero"
    data_order: Literal["contiguous", "packed", "shuffled"] | None = None
    """How documents fill the rows: chunks in random order; chunks that go on from batch to batch; or packed, whole
    documents one after another in a row (the choice for many that are shorter than --context). Default: what the
    method needs, else shuffled."""
    task: str | None = None
    """Train on examples of babilong, copying, passkey or recall, with the loss on their answers. Default: on text."""
    tasks: TasksConfig = field(default_factory=TasksConfig)
    training: TrainingConfig = field(
        default_factory=lambda: TrainingConfig(steps=1500, batch_size=32, learning_rate=3e-3)
    )
    data: DataConfig = field(default_factory=lambda: DataConfig(tokenizer="bytes"))
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)


@dataclass(frozen=True, kw_only=True)
class EvaluateConfig:
    """What can the model still do at a length? Runs tasks over a grid of lengths, with intervals and floors."""

    model: Model = BUNDLED
    """A folder or file of any checkpoint format, a hub id owner/name, or "bundled"."""
    context: int | None = None
    """Tokens at a time that the model was trained at, to be shown. Default: the model's own record, if it has one."""
    task: tuple[str, ...] = ("passkey",)
    """Which tasks: babilong, copying, passkey, recall."""
    lengths: tuple[str, ...] = ("1k", "2k", "4k", "8k", "16k")
    """Lengths: 300, 2k, 256k. Tokens of prompt and answer together; for copying, letters of the string."""
    examples: int = 100
    """Examples in each cell of the grid."""
    confidence: float = 0.95
    """Of the interval of each cell."""
    tasks: TasksConfig = field(default_factory=TasksConfig)
    tokenizer: str | None = None
    """A tokenizer.json, a folder, a hub id, or "bytes". Default: from the model's folder, then its configuration."""
    cache: str | None = None
    """Folder that keeps the examples, for other runs. Default: $XDG_CACHE_HOME/everlong/tasks."""
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)

    def __post_init__(self) -> None:
        if self.examples < 1:
            raise EverlongError(f"--examples {self.examples} is too few; it must be at least 1")
        if not 0 < self.confidence < 1:
            raise EverlongError(f"--confidence {self.confidence} must lie between 0 and 1")
        for name in ("task", "lengths"):
            if not getattr(self, name):
                raise EverlongError(f"--{name} is empty; give one or more")
        for length in self.lengths:
            parse_length(length)


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """Let a model go on with a text, as it writes. The prompt is read whole, however long."""

    model: Model = BUNDLED
    """A folder or file of any checkpoint format, a hub id owner/name, or "bundled"."""
    prompt: str
    """The text to go on with."""
    max_new_tokens: int = 200
    """Tokens to write."""
    sampling: SamplingConfig = field(default_factory=lambda: SamplingConfig(temperature=0.8))
    stop_tokens: tuple[int, ...] = ()
    """Token ids at which to stop, such as that of the end of a text."""
    tokenizer: str | None = None
    """A tokenizer.json, a folder, a hub id, or "bytes". Default: from the model's folder, then its configuration."""
    machine: MachineConfig = field(default_factory=MachineConfig)

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise EverlongError(f"--max-new-tokens {self.max_new_tokens} is too small; it must be at least 1")


@dataclass(frozen=True, kw_only=True)
class ReportConfig:
    """Figures and page of a run again, from its records alone."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run folder."""
    paper: bool = False
    """Also draw the run beside the paper's own curves. These were read off published figures and are approximate."""


@dataclass(frozen=True, kw_only=True)
class DoctorConfig:
    """What is this model, and does it keep the contract here? Opens it, says where each number was read, and measures.

    Random tokens are read in one piece and in several, packed and alone, by the chosen backend and by the reference
    loop, in train and eval mode: all must agree. Exit code 1 where something is wrong.
    """

    model: Model = BUNDLED
    """A folder or file of any checkpoint format, a hub id owner/name, or "bundled"."""
    context: int | None = None
    """Tokens at a time that the model was trained at. Default: the model's own record."""
    output: str | None = None
    """Save the record in this run folder, which must not exist. Default: nothing is saved, the screen is all."""
    machine: MachineConfig = field(default_factory=MachineConfig)


@dataclass(frozen=True, kw_only=True)
class ConvertMachineConfig(MachineConfig):
    """Where and how to compute: the flags that all verbs have."""

    dtype: Literal["float32", "bfloat16", "float64"] | None = None
    """Precision that is written. Default: what the file holds (of several, the widest)."""


@dataclass(frozen=True, kw_only=True)
class ConvertConfig:
    """Write a model in another checkpoint format, and prove that it is the same model.

    What was written is opened again: its tensors must be the same to the bit, on the way back to IN's format too, and
    its logits equal. Only then does OUT appear; a proof that fails leaves nothing and is exit code 1.
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="IN")]
    """A folder or file of any checkpoint format, or a hub id owner/name."""
    target: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="OUT")]
    """The folder to write, which must not exist."""
    to: Annotated[str, tyro.conf.arg(metavar="FORMAT")]
    """The format of OUT: everlong, state-spaces, transformers, ... (a wrong name lists all)."""
    transformers: bool = True
    """Where OUT is of the transformers format, also load it with that library and compare the logits."""
    machine: ConvertMachineConfig = field(default_factory=ConvertMachineConfig)
