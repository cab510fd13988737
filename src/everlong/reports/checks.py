"""The screens of `everlong doctor` and `everlong convert`: readable at 80 columns and without colour."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from everlong.records.conversion import Conversion
from everlong.records.doctor import Check, Doctor

OK, WRONG = Text("ok", style="green"), Text("WRONG", style="bold red")


def doctor_screen(record: Doctor) -> RenderableType:
    """What the model is, its backends, its state, the checks."""
    title = Text(f"{record.model}: {record.architecture}, {record.parameters:,} parameters, {record.format} format")
    title.stylize("bold")
    facts = _table("what", "value", "where it was read: key of config.json; tensor that shows it")
    for fact in record.facts:
        facts.add_row(fact.name, fact.value, Text(fact.source))
    backends = _table("backend", "usable", "")
    for backend in record.backends:
        why = backend.reason or (f"chosen: {backend.why}" if backend.chosen else "")
        backends.add_row(backend.name, "no" if backend.reason else "yes", Text(why))
    state = _table("state", "role", "shape of a row", "dtype", "layers", "bytes a row")
    for leaf in record.state:
        shape = Text(" x ".join(map(str, leaf.shape)))
        state.add_row(leaf.name, leaf.role, shape, leaf.dtype, f"{leaf.layers}", f"{leaf.bytes:,}")
    state.add_row("all", "", "", "", "", f"{sum(leaf.bytes for leaf in record.state):,}")
    return Group(title, "", facts, "", backends, "", state, "", _checks(record.checks))


def doctor_lines(record: Doctor) -> tuple[str, ...]:
    """How it was measured, and the finding in one sentence."""
    return (
        f"Measured on {record.rows} rows of {record.length} random tokens (seed {record.seed}) by backend "
        f"{record.backend} on {record.device} in {record.dtype}. 1 eps: the dtype's epsilon of the largest logit (or, "
        "in the state, of the largest number of the leaf).",
        finding(record),
    )


def finding(record: Doctor) -> str:
    """What is wrong, or that nothing is, in one sentence."""
    if not record.wrong:
        return f"Nothing is wrong: all {len(record.checks)} checks are within their bounds."
    found = "; ".join(f"{check.name}: {_result(check)}" for check in record.wrong)
    return f"WRONG, {len(record.wrong)} of {len(record.checks)} checks: {found}."


def conversion_table(record: Conversion) -> Table:
    """The proof."""
    table = _checks(record.checks)
    table.title = Text(
        f"{record.source} ({record.source_format}) as {record.target_format}: {record.architecture}, "
        f"{record.parameters:,} parameters, {record.dtype}"
    )
    table.title_style, table.title_justify = "bold", "left"
    return table


def conversion_lines(record: Conversion) -> tuple[str, ...]:
    """What differs, or where the model is."""
    if record.wrong:
        first = record.wrong[0]
        return (f"Not the same model, so nothing is kept at {record.target}: {first.name}: {_result(first)}.",)
    return ("The same model, proven.", record.target)


def check_cells(check: Check) -> tuple[str, str, str]:
    """What was seen, what is the most, and what it is, in words."""
    seen = "" if check.value is None else f"{number(check.value)} {check.unit}".rstrip()
    bound = "" if check.bound is None else f"{number(check.bound)} {check.unit}".rstrip()
    return seen, bound, check.words


def _checks(checks: Sequence[Check]) -> Table:
    table = _table("check", "", "seen", "bound", "")
    for check in checks:
        table.add_row(check.name, OK if check.ok else WRONG, *map(Text, check_cells(check)))
    return table


def _result(check: Check) -> str:
    if check.value is None:
        return check.words
    seen, bound = number(check.value), number(check.bound or 0.0)
    return f"{seen} {check.unit}".rstrip() + f" where {bound} is the most; {check.words}"


def number(value: float) -> str:
    """An error for people: 0, 3.1, 460, 2e+05."""
    return f"{value:.2g}" if value < 100 else f"{value:.0f}" if value < 1e5 else f"{value:.0e}"


def _table(*headers: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in headers:
        table.add_column(header, no_wrap=header in ("what", "backend", "seen", "bound"))
    return table
