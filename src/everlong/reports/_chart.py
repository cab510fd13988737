"""What a figure is, and how it is written: SVG, PDF and its data as CSV, the same bytes from the same records."""

import csv
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

# Text is drawn as paths: the same on every machine, and safe from a browser's own fonts.
SETTINGS: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 11,
    "axes.labelsize": 11,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.edgecolor": "#555555",
    "xtick.color": "#333333",
    "ytick.color": "#333333",
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "text.parse_math": False,  # a model's name may hold a dollar sign
}
WIDTH = 6.2
"""Inches: narrow, so that the letters stay readable on a phone."""


@dataclass(frozen=True)
class Chart:
    """A figure, what it shows in words, and the numbers that it is drawn from."""

    name: str
    title: str
    caption: str
    figure: Figure
    columns: tuple[str, ...]
    rows: tuple[tuple, ...]


@dataclass(frozen=True)
class DrawnChart:
    """A figure as written: the SVG ready to stand inside a page, the data as CSV text."""

    name: str
    title: str
    caption: str
    svg: str
    csv: str


@contextmanager
def drawing() -> Iterator[None]:
    """Our settings, for the time of drawing only."""
    with matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn with boxes; the page says it in full.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def write_chart(chart: Chart, folder: Path) -> DrawnChart:
    """Writes NAME.svg, NAME.pdf and NAME.csv into ``folder``. To be called within ``drawing()``."""
    folder.mkdir(parents=True, exist_ok=True)
    matplotlib.rcParams["svg.hashsalt"] = chart.name
    drawn = io.StringIO()
    chart.figure.savefig(drawn, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    chart.figure.set_layout_engine("none")  # laid out by the first drawing; again would take as long again
    chart.figure.savefig(folder / f"{chart.name}.pdf", metadata={"CreationDate": None})
    data = io.StringIO()
    csv.writer(data, lineterminator="\n").writerows([chart.columns, *chart.rows])
    (folder / f"{chart.name}.svg").write_text(drawn.getvalue(), encoding="utf-8")
    (folder / f"{chart.name}.csv").write_text(data.getvalue(), encoding="utf-8")
    return DrawnChart(chart.name, chart.title, chart.caption, for_page(drawn.getvalue(), chart.name), data.getvalue())


def for_page(svg: str, name: str) -> str:
    """Makes an SVG file fit to stand in a page with others: no prolog, no fixed size, and identities of its own."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    head, rest = svg.split(">", 1)
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    svg = f"{head}>{rest}"
    svg = re.sub(r'\bid="([^"]*)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'href="#([^"]*)"', rf'href="#{name}-\1"', svg)
    return re.sub(r"url\(#([^)]*)\)", rf"url(#{name}-\1)", svg)
