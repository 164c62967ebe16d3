"""Tables that fit a terminal of any width. A figure is never cut: where the columns do not fit, rows become lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from specdec_exporter.formatting import plain

# Longer words, such as paths, are folded.
_LONGEST_WORD: Final = 16
_LONGEST_FIGURE: Final = 24
_FIGURE: Final = re.compile(r"[-+<>]?\d")
_INTERVAL: Final = re.compile(r" (?=\()")
_LIST_INDENT: Final = (0, 0, 0, 2)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A borderless table, without a head if all ``heads`` are empty. The first column has the names of the rows.

    ``heads`` and ``rows`` can be printed. ``figures``: the other columns may hold figures, which stay on one line, but
    for the interval behind a figure; ``right``: they end at one place. ``whole_names``: the names stay on one line too.
    ``notes``: the last column explains the others.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    gap: int = 3
    figures: bool = True
    right: bool = False
    whole_names: bool = False
    notes: bool = False

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield a table if it fits, else each row as a list."""
        widths = self._widths(options.max_width)
        if widths is None:
            yield from self._lists()
        else:
            yield self._table(widths)

    def _widths(self, available: int) -> list[int] | None:
        """Return the widths of the columns; ``None`` if a word or figure would be cut. The widest ones give way."""
        columns = list(zip(self.heads, *self.rows, strict=True))
        widths = [max(map(cell_len, column)) for column in columns]
        least = [max(self._least(cell, index) for cell in column) for index, column in enumerate(columns)]
        room = available - self.gap * (len(columns) - 1)
        if sum(least) > room:
            return None
        while sum(widths) > room:
            wide = max((index for index, width in enumerate(widths) if width > least[index]), key=widths.__getitem__)
            widths[wide] -= 1
        return widths

    def _least(self, cell: str, column: int) -> int:
        if column == 0 and self.whole_names:
            return cell_len(cell)
        if column > 0 and self.figures and _FIGURE.match(cell) and cell_len(cell) <= _LONGEST_FIGURE:
            return max(map(cell_len, _INTERVAL.split(cell)))
        return min(_LONGEST_WORD, max(map(cell_len, cell.split()), default=0))

    def _table(self, widths: Sequence[int]) -> Table:
        result = Table(
            box=None, pad_edge=False, padding=(0, self.gap, 0, 0), show_header=any(self.heads), header_style="dim"
        )
        last = len(self.heads) - 1
        for index, (head, width) in enumerate(zip(self.heads, widths, strict=True)):
            note = self.notes and index == last
            result.add_column(
                head,
                width=width,
                overflow="fold",
                justify="right" if self.right and index and not note else "left",
                style="dim" if note or (self.whole_names and index == 0) else "",
            )
        for row in self.rows:
            result.add_row(*(Text(_fitted(cell, width)) for cell, width in zip(row, widths, strict=True)))
        return result

    def _lists(self) -> Iterator[RenderableType]:
        for name, *cells in self.rows:
            yield Text(f"{self.heads[0]} {name}".strip())
            if len(cells) == 1:
                yield Padding(Text(cells[0]), _LIST_INDENT)
            else:
                shown = tuple((head, cell) for head, cell in zip(self.heads[1:], cells, strict=True) if cell)
                yield Padding(Sheet(("", ""), shown, gap=2, figures=self.figures), _LIST_INDENT)


def _fitted(cell: str, width: int) -> str:
    """Return a cell with its interval on a line of its own, if it is a figure that is wider than its column."""
    if cell_len(cell) > width and _FIGURE.match(cell) and cell_len(cell) <= _LONGEST_FIGURE:
        return _INTERVAL.sub("\n", cell)
    return cell


def table(*columns: str, rows: Iterable[Sequence[str]], gap: int = 3, numbers: bool = True) -> Sheet:
    """Return a table of figures; ``numbers``: all but the first column are aligned at their right ends."""
    return Sheet(columns, tuple(tuple(map(plain, row)) for row in rows), gap=gap, right=numbers)


def pairs(rows: Iterable[tuple[str, str]]) -> Sheet:
    """Return a table of names and what is said of each."""
    return Sheet(("", ""), tuple((plain(name), plain(text)) for name, text in rows), figures=False, whole_names=True)
