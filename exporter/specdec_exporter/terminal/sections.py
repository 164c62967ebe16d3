"""A report of ``compare``, written as text of a terminal, as Markdown, or as its documented JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple, TextIO, TypeVar

import msgspec
from rich.console import Console
from rich.text import Text

from specdec_exporter.comparison.likeness import Flag
from specdec_exporter.formatting import plain
from specdec_exporter.speculation.verdict import Finding
from specdec_exporter.terminal.console import heading, indented, write
from specdec_exporter.terminal.figures import print_finding
from specdec_exporter.terminal.sheet import table

Output = Literal["text", "markdown", "json"]

_MANY_COLUMNS: Final = 8  # with gaps of two, they do not fit a terminal of 80
_FLAGS_TITLE: Final = "Read the result with care"


class Section(NamedTuple):
    """A table with its title. The first cell of a row is its name."""

    title: str
    rows: list[tuple[str, ...]]
    columns: tuple[str, ...] = ("", "baseline", "candidate")


class Report(NamedTuple):
    """What a reader is told of a comparison.

    ``headline`` and ``outlook`` say what was found, ``action`` what to do next. ``to_copy`` is a line for a shell.
    Markdown has ``guide`` instead of ``sections``, if it is given. Text has ``note``, ``details`` and
    ``details_legend`` only where details are wanted. ``commands``: a side, and the command that started its server.
    """

    title: str
    headline: str
    style: str
    action: str
    flags: Sequence[Flag]
    sections: Sequence[Section]
    legends: Sequence[str]
    details: Sequence[Section]
    commands_title: str
    commands: Sequence[tuple[str, str | None]]
    outlook: str = ""
    remarks: Sequence[str] = ()
    to_copy: str | None = None
    note: str | None = None
    details_legend: str = ""
    guide: Sequence[Section] | None = None
    reasons: Sequence[str] = ()


_Compared = TypeVar("_Compared", bound=msgspec.Struct)


def write_report(
    stream: TextIO, compared: _Compared, output: Output, report: Callable[[_Compared], Report], *, verbose: bool
) -> None:
    """Write what was ``compared`` to ``stream``; ``verbose`` adds details to text, Markdown and JSON have all.

    The last two are UTF-8 whatever the terminal can show, because a file or a program reads them.
    """
    if output == "text":
        write(stream, lambda console: print_report(console, report(compared), verbose=verbose))
        return
    text = as_markdown(report(compared)) if output == "markdown" else as_json(compared)
    stream.buffer.write(text.encode())
    stream.flush()


# --- Terminal --------------------------------------------------------------------------------------------------------


def print_report(console: Console, report: Report, *, verbose: bool) -> None:
    """Print what was found and what to do; then tables, reasons and flags."""
    console.print(Text(plain(report.headline), style=f"bold {report.style}"))
    for words in filter(None, (report.outlook, report.action, *report.remarks)):
        console.print(Text(plain(words)))
    if report.to_copy is not None:
        console.print(Text(plain(report.to_copy)), soft_wrap=True)
    if verbose and report.note is not None:
        console.print(Text(plain(report.note)))
    for section in report.sections:
        _print_section(console, section)
    for legend in report.legends:
        indented(console, legend)
    if verbose:
        for section in report.details:
            _print_section(console, section)
        if report.details_legend:
            indented(console, report.details_legend)
    if report.reasons:
        heading(console, "Reasons", *(Text(plain(f"- {reason}")) for reason in report.reasons))
    if report.flags:
        heading(console, _FLAGS_TITLE)
    for flag in report.flags:
        print_finding(console, Finding("WARN", flag.code, flag.message, flag.action))


def _print_section(console: Console, section: Section) -> None:
    gap = 2 if len(section.columns) < _MANY_COLUMNS else 1
    heading(console, section.title, table(*section.columns, rows=section.rows, gap=gap, numbers=False))


def flag_codes(flags: Sequence[Flag]) -> str:
    """Return ``Flags: load_differs (see below).``"""
    codes = dict.fromkeys(flag.code for flag in flags)
    return f"Flags: {', '.join(codes)} (see below)." if codes else "Flags: none."


# --- Markdown --------------------------------------------------------------------------------------------------------


def as_markdown(report: Report) -> str:
    """Return a report with all figures, settings and commands, so that a reader can repeat it."""
    outlook = f" {_escaped(report.outlook)}" if report.outlook else ""
    lines = [f"# {_escaped(report.title)}", "", f"**{_escaped(report.headline)}**{outlook}"]
    for words in filter(None, (report.action, *report.remarks)):
        lines += ["", _escaped(words)]
    if report.to_copy is not None:
        lines += ["", *_fenced(report.to_copy)]
    if report.note is not None:
        lines += ["", _escaped(report.note)]
    if report.reasons:
        lines += ["", *(f"- {_escaped(reason)}" for reason in report.reasons)]
    for section in (*(report.sections if report.guide is None else report.guide), *report.details):
        lines += _markdown_section(section)
    if legends := " ".join(filter(None, (*report.legends, report.details_legend))):
        lines += ["", _escaped(legends)]
    lines += ["", f"## {report.commands_title}"]
    for side, command in report.commands:
        lines += ["", _escaped(side), "", *_fenced(command)]
    if report.flags:
        lines += ["", f"## {_FLAGS_TITLE}", ""]
    lines += (f"- `{flag.code}`: {_escaped(flag.message)}. {_escaped(flag.action)}" for flag in report.flags)
    return "\n".join(lines) + "\n"


def _markdown_section(section: Section) -> Iterator[str]:
    """Yield the lines of a section, after an empty one."""
    yield from ("", f"## {_escaped(section.title)}", "", _row(section.columns), "|" + " --- |" * len(section.columns))
    yield from map(_row, section.rows)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_escaped, cells))} |"


def _escaped(text: str) -> str:
    """Return ``text`` on one line, escaped for Markdown and for the cells of its tables."""
    return re.sub(r"([\\`*_|<\[\]])", r"\\\1", plain(" ".join(text.split())))


def _fenced(command: str | None) -> list[str]:
    """Return a command as a Markdown block of code."""
    if command is None:
        return ["not given"]
    longest = max(map(len, re.findall("`+", command)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence, plain(command), fence]


def as_json(document: msgspec.Struct) -> str:
    """Return the documented JSON, indented."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
