"""Tables of any width for a terminal of any width: what does not fit beside the names of the rows goes on below them.

Nothing is cut and no column is left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.table import Table
from rich.text import Text

GAP = 2


@dataclass(frozen=True)
class Column:
    """A column; a new line in its header breaks it."""

    header: str
    cells: tuple[Text, ...]
    right: bool = False

    @property
    def width(self) -> int:
        """Of the widest line, in characters of the screen."""
        return max(map(cell_len, (*self.header.split("\n"), *(cell.plain for cell in self.cells))))


@dataclass(frozen=True)
class Pieces:
    """A table in as many pieces as it takes, one below the other, each with the names of the rows."""

    title: str
    names: Sequence[Column]
    columns: Sequence[Column]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text | Table]:
        """Laid out for the width that there is."""
        yield Text(self.title, style="bold")
        for number, piece in enumerate(self._pieces(options.max_width)):
            if number:
                yield Text()
            yield _drawn((*self.names, *piece))

    def _pieces(self, width: int) -> Iterator[list[Column]]:
        """As many columns as fit beside the names, then the next."""
        free = width - sum(column.width + GAP for column in self.names)
        piece, left = [], free
        for column in self.columns:
            if piece and column.width > left:
                yield piece
                piece, left = [], free
            piece.append(column)
            left -= column.width + GAP
        yield piece


def texts(cells: Sequence[str]) -> tuple[Text, ...]:
    """Plain words as the cells of a column."""
    return tuple(map(Text, cells))


def _drawn(columns: Sequence[Column]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column in columns:  # folded where not even one column fits
        table.add_column(Text(column.header), justify="right" if column.right else "left", overflow="fold")
    for cells in zip(*(column.cells for column in columns), strict=True):
        table.add_row(*cells)
    return table
