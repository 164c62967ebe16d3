"""Titled tables that text and Markdown reports share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple, TextIO

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specdec_exporter.formatting import plain
from specdec_exporter.terminal.console import heading, indented

Output = Literal["text", "markdown", "json"]

_MANY_COLUMNS: Final = 8  # with gaps of two, they do not fit a terminal of 80
FLAGS_TITLE: Final = "Read the result with care"


class Section(NamedTuple):
    """A table with its title. The first cell of a row is its name."""

    title: str
    rows: list[tuple[str, ...]]
    columns: tuple[str, ...] = ("", "baseline", "candidate")


def print_section(console: Console, section: Section) -> None:
    """Print a section under its title."""
    gap = 2 if len(section.columns) < _MANY_COLUMNS else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    table.show_header = any(section.columns)
    for column in section.columns:
        table.add_column(column, overflow="fold")
    for row in section.rows:
        table.add_row(*(Text(plain(cell)) for cell in row))
    heading(console, section.title)
    indented(console, table)


def markdown_section(section: Section) -> Iterator[str]:
    """Yield the lines of a section, after an empty one."""
    yield from ("", f"## {escaped(section.title)}", "", _row(section.columns), "|" + " --- |" * len(section.columns))
    yield from map(_row, section.rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"


def escaped(text: str) -> str:
    """Return ``text`` on one line, escaped for Markdown and for the cells of its tables."""
    return re.sub(r"([\\`*_|<\[\]])", r"\\\1", plain(" ".join(text.split())))


def fenced(command: str | None) -> list[str]:
    """Return a command as a Markdown block of code."""
    if command is None:
        return ["not given"]
    longest = max(map(len, re.findall("`+", command)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, plain(command), fence]


def write_utf8(stream: TextIO, text: str) -> None:
    """Write ``text`` as UTF-8 whatever the terminal can show, because a file or a program reads it."""
    stream.buffer.write(text.encode())
    stream.flush()


def as_json(document: msgspec.Struct) -> str:
    """Return the documented JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
