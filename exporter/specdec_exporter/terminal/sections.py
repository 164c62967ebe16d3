"""What the reports of ``compare`` share: titled tables and flags, as text and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TextIO

import msgspec
from rich.console import Console

from specdec_exporter.comparison.likeness import Flag
from specdec_exporter.formatting import plain
from specdec_exporter.speculation.verdict import Finding
from specdec_exporter.terminal.console import heading, table, write
from specdec_exporter.terminal.figures import print_finding

Output = Literal["text", "markdown", "json"]

_MANY_COLUMNS: Final = 8  # with gaps of two, they do not fit a terminal of 80
_FLAGS_TITLE: Final = "Read the result with care"


class Section(NamedTuple):
    """A table with its title. The first cell of a row is its name."""

    title: str
    rows: list[tuple[str, ...]]
    columns: tuple[str, ...] = ("", "baseline", "candidate")


def write_report(
    stream: TextIO,
    report: msgspec.Struct,
    output: Output,
    draw: Callable[[Console], None],
    markdown: Callable[[], str],
) -> None:
    """Write ``report`` to ``stream``: text as ``draw`` prints it, Markdown, or the documented JSON.

    The last two are UTF-8 whatever the terminal can show, because a file or a program reads them.
    """
    if output == "text":
        write(stream, draw)
        return
    stream.buffer.write((markdown() if output == "markdown" else as_json(report)).encode())
    stream.flush()


def print_section(console: Console, section: Section) -> None:
    """Print a section under its title."""
    gap = 2 if len(section.columns) < _MANY_COLUMNS else 1
    heading(console, section.title, table(*section.columns, rows=section.rows, gap=gap, numbers=False))


def flag_codes(flags: Sequence[Flag]) -> str:
    """Return ``Flags: load_differs (see below).``"""
    codes = dict.fromkeys(flag.code for flag in flags)
    return f"Flags: {', '.join(codes)} (see below)." if codes else "Flags: none."


def print_flags(console: Console, flags: Sequence[Flag]) -> None:
    """Print the reasons to read the result with care, if there are any."""
    if flags:
        heading(console, _FLAGS_TITLE)
    for flag in flags:
        print_finding(console, Finding("WARN", flag.code, flag.message, flag.action))


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


def markdown_flags(flags: Sequence[Flag]) -> Iterator[str]:
    """Yield the lines of the reasons to read the result with care, after an empty one."""
    if flags:
        yield from ("", f"## {_FLAGS_TITLE}", "")
    for flag in flags:
        yield f"- `{flag.code}`: {escaped(flag.message)}. {escaped(flag.action)}"


def as_json(document: msgspec.Struct) -> str:
    """Return the documented JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
