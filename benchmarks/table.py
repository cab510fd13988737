"""The table: its rows with their targets, how one is run, and how they are printed and kept."""

from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any, Literal

from rich.table import Table

from benchmarks.contracts import Refused, require
from benchmarks.measure import Measurement, NotAvailable
from benchmarks.settings import Settings

ARCHITECTURES = ("gla", "mamba1", "mamba2", "rwkv6")
Outcome = Literal["reached", "missed", "measured", "not available", "refused", "failed"]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A target: the figure is to be at least, or at most, a bound; ``unit`` stands behind both."""

    sense: Literal["at least", "at most"]
    bound: float
    unit: str = "x"

    def met_by(self, value: float) -> bool:
        """Whether a figure reaches the target."""
        return value >= self.bound if self.sense == "at least" else value <= self.bound

    def __str__(self) -> str:
        return f"{'>=' if self.sense == 'at least' else '<='} {self.bound:g}{self.unit}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row: what is measured against what, what is wanted, and the paths whose contract must hold.

    ``measure`` is "module:function" below benchmarks.rows, called with the settings and ``arguments``.
    """

    name: str
    work: str
    against: str
    wanted: Wanted | None
    contracts: tuple[str, ...]
    measure: str
    arguments: Callable[[], dict[str, Any]] = dict

    def run(self, settings: Settings) -> "Line":
        """Measures, unless the contract suite of a path fails."""
        measured, held, why = None, [], ""
        outcome: Outcome = "measured"
        try:
            held = [require(path) for path in self.contracts]
            module, function = self.measure.split(":")
            measured = getattr(import_module(f"benchmarks.rows.{module}"), function)(settings, **self.arguments())
            if self.wanted:
                outcome = "reached" if self.wanted.met_by(measured.figure.median) else "missed"
        except NotAvailable as reason:
            outcome, why = "not available", str(reason)
        except Refused as reason:
            outcome, why = "refused", f"no figure: the contract does not hold: {reason}"
        except Exception as error:  # the other rows are still worth having
            outcome, why = "failed", repr(error)
        return Line(row=self, outcome=outcome, measured=measured, reason=why, contracts=tuple(held))


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row that was run."""

    row: Row
    outcome: Outcome
    measured: Measurement | None
    reason: str
    contracts: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """What is kept."""
        row, found = self.row, self.measured
        content: dict[str, Any] = {
            "name": row.name,
            "work": row.work,
            "against": row.against,
            "wanted": str(row.wanted) if row.wanted else None,
            "outcome": self.outcome,
            "contracts": self.contracts,
        }
        if found is None:
            return content | {"reason": self.reason}
        figure = {name: getattr(found.figure, name) for name in ("median", "low", "high", "values")}
        figure["of_fastest"] = found.of_fastest
        return content | {"figure": figure, "seconds": dict(found.seconds), "note": found.note}


def _products(architecture: str, *, wide: bool) -> Row:
    def arguments() -> dict[str, Any]:
        from benchmarks import shapes

        config = shapes.wide(architecture) if wide else shapes.TINY[architecture]
        return {"config": config, "rows": 2 if wide else shapes.ROWS}

    return Row(
        name=f"products-{architecture}{'-768' if wide else ''}",
        work=f"training step, {architecture}{', 768 wide' if wide else ''}",
        against="its matrix products alone",
        wanted=Wanted(sense="at most", bound=1.4 if wide else 1.6),
        contracts=(architecture,),
        measure="training:against_products",
        arguments=arguments,
    )


def _transformers(name: str, architecture: str, against: str, bound: float, **theirs: Any) -> Row:
    return Row(
        name=name,
        work=f"training step, {architecture}",
        against=f"transformers, {against}",
        wanted=Wanted(sense="at least", bound=bound),
        contracts=(architecture,),
        measure="training:against_transformers",
        arguments=lambda: {"architecture": architecture, **theirs},
    )


def _op(name: str, work: str, contract: str, function: str, *, wanted: bool = True) -> Row:
    return Row(
        name=name,
        work=f"{work}, forward + backward",
        against="chunked torch",
        wanted=Wanted(sense="at least", bound=3.0) if wanted else None,
        contracts=(contract,),
        measure=f"ops:{function}",
    )


def _llama_cpp(architecture: str, bound: float) -> Row:
    return Row(
        name=f"evaluation-{architecture}",
        work=f"evaluation of 64k tokens, all logits, {architecture}",
        against="llama.cpp, native build",
        wanted=Wanted(sense="at least", bound=bound),
        contracts=(architecture,),
        measure="evaluation:against_llama_cpp",
        arguments=lambda: {"architecture": architecture},
    )


def _carried(name: str, work: str, against: str, bound: float, architecture: str) -> Row:
    return Row(
        name=f"{name.replace('_', '-')}-{architecture}",
        work=f"{work}, {architecture}",
        against=against,
        wanted=Wanted(sense="at most", bound=bound),
        contracts=(architecture,),
        measure=f"streaming:{name}",
        arguments=lambda: {"architecture": architecture},
    )


def _remembrance(name: str, what: str, ends: tuple[int, ...]) -> Row:
    return Row(
        name=name,
        work=f"EffRem, 32 starts, {what}",
        against="each suffix alone",
        wanted=Wanted(sense="at least", bound=4.0),
        contracts=("mamba2",),
        measure="streaming:effective_remembrance",
        arguments=lambda: {"ends": ends},
    )


ROWS: tuple[Row, ...] = (
    _transformers("train-mamba2-chunk64", "mamba2", "chunk 64", 2.5, chunk_size=64),
    _transformers("train-mamba2-default", "mamba2", "its default, chunk 256", 3.3, chunk_size=256),
    _transformers("train-mamba1-mambapy", "mamba1", "mambapy", 8.0, use_mambapy=True),
    *(_products(architecture, wide=False) for architecture in ARCHITECTURES),
    *(_products(architecture, wide=True) for architecture in ARCHITECTURES),
    Row(
        name="train-bf16",
        work="training step with bf16 products, mamba2",
        against="fp32",
        wanted=Wanted(sense="at least", bound=1.3),
        contracts=("mamba2",),
        measure="training:bf16_against_fp32",
    ),
    _op("op-scalar", "gated linear attention, scalar decay", "gated_linear_attention", "scalar_decay"),
    _op("op-vector", "gated linear attention, vector decay", "gated_linear_attention", "vector_decay"),
    _op("op-scan", "selective scan", "selective_scan", "scan", wanted=False),
    _llama_cpp("mamba1", 3.0),
    _llama_cpp("mamba2", 1.8),
    _llama_cpp("rwkv6", 1.8),
    *(_carried("state_passing", "state passing step", "the zero start", 1.02, a) for a in ARCHITECTURES),
    *(_carried("decoding", "a token at position 100,000", "at position 100", 1.05, a) for a in ARCHITECTURES),
    _carried("million_time", "time a token in one row of 1,000,000", "in a row of 16,384", 1.05, "mamba2"),
    _carried("million_memory", "peak memory of one row of 1,000,000", "of one of 16,384", 1.05, "mamba2"),
    _remembrance("remembrance", "T = 8192", (8191,)),
    _remembrance("remembrance-16", "16 T, 256 to 4096", tuple(range(255, 4096, 256))),
    Row(
        name="recipe",
        work="the bundled model's recipe, 3M tokens from scratch",
        against="the clock",
        wanted=Wanted(sense="at most", bound=3.0, unit=" min"),
        contracts=("mamba2",),
        measure="recipe:bundled",
    ),
)


def select(patterns: tuple[str, ...]) -> tuple[Row, ...]:
    """The rows that any of the patterns names; none given: all.

    Raises:
        ValueError: a pattern names no row.
    """
    for pattern in patterns:
        if not any(fnmatchcase(row.name, pattern) for row in ROWS):
            raise ValueError(f"--only {pattern} names no row; known: {', '.join(row.name for row in ROWS)}")
    return tuple(row for row in ROWS if not patterns or any(fnmatchcase(row.name, p) for p in patterns))


HEADINGS = ("row", "work", "against", "wanted", "median", "smallest - largest", "of the fastest", "")


def as_table(lines: list[Line], title: str) -> Table:
    """For the screen."""
    table = Table(title=title)
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold", no_wrap=heading == "row")
    for line in lines:
        table.add_row(*cells(line))
    return table


def as_markdown(lines: list[Line]) -> str:
    """For a document."""
    rows = [HEADINGS, ["---"] * len(HEADINGS), *(cells(line) for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def notes(lines: list[Line]) -> list[str]:
    """What a reader must know of each row."""
    return [
        f"{line.row.name}: {text}" for line in lines if (text := line.measured.note if line.measured else line.reason)
    ]


def cells(line: Line) -> list[str]:
    """A line of the table."""
    row, found, unit = line.row, line.measured, line.row.wanted.unit if line.row.wanted else "x"
    beside = [row.name, row.work, row.against, str(row.wanted or "-")]
    if found is None:
        return [*beside, "-", "-", "-", line.outcome]
    spread, fastest = found.figure, found.of_fastest
    figures = [f"{spread.median:.3g}{unit}", f"{spread.low:.3g} - {spread.high:.3g}"]
    return [*beside, *figures, "-" if fastest is None else f"{fastest:.3g}{unit}", line.outcome]
