"""How anything is printed: on a terminal or in a pipe, as tables, bars, a sparkline and frames.

Pipes get no escape sequences, ``NO_COLOR`` no colour, an ASCII-only stream ASCII; text that comes from a log or a
predictor is stripped of control characters. Nothing is told by colour alone.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from specdec_exporter.formatting import plain

PROGRESS_FROM_BYTES = 50_000_000

_BLOCKS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"
_ASCII_SPARKS = "_.-=+*#@"
_INDENT = (0, 0, 0, 2)


def console_for(stream: TextIO) -> Console:
    """Return a console on ``stream`` that takes every string as it is and never fails on a character."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    return Console(file=stream, markup=False, emoji=False, highlight=False)


def write(stream: TextIO, draw: Callable[[Console], None]) -> None:
    """Write what ``draw`` prints to ``stream`` in one piece; raises BrokenPipeError where nobody reads it any more."""
    console = console_for(stream)
    with console.capture() as captured:  # rich, left to itself, ends the process at a broken pipe
        draw(console)
    stream.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    stream.flush()


@contextmanager
def reading_progress(stream: TextIO, total_bytes: int, *, live: bool) -> Iterator[Callable[[int], None] | None]:
    """Show how far reading is, on a terminal and where it takes long enough; give what is to be told the bytes so far.

    ``live``: the end is not known (a pipe). Gives ``None`` where nothing is shown.
    """
    if not stream.isatty() or (total_bytes < PROGRESS_FROM_BYTES and not live):
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn  # noqa: PLC0415  most runs show none

    columns = (TextColumn("Reading"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console_for(stream), transient=True) as progress:
        task = progress.add_task("", total=None if live else total_bytes)
        yield lambda done: progress.update(task, completed=done)


def is_ascii_only(console: Console) -> bool:
    """Whether block characters would come out as question marks."""
    return console.options.ascii_only


def bar(ratio: float | None, cells: int, *, ascii_only: bool) -> str:
    """``ratio`` (0..1) as a bar of at most ``cells`` characters, to an eighth of one; a dash where it is not defined.

    A ratio above 0 always shows something.
    """
    if ratio is None:
        return "-"
    filled = min(max(ratio, 0.0), 1.0) * cells
    if ascii_only:
        return "#" * max(round(filled), 1 if ratio > 0 else 0)
    eighths = max(round(filled * 8), 1 if ratio > 0 else 0)
    return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()


def sparkline(ratios: Sequence[float | None], *, ascii_only: bool) -> str:
    """One character for each ratio on the fixed scale 0..1 (so that two lines compare); a blank where undefined."""
    levels = _ASCII_SPARKS if ascii_only else _SPARKS
    top = len(levels) - 1
    return "".join(
        " " if ratio is None else levels[min(top, int(min(max(ratio, 0.0), 1.0) * len(levels)))] for ratio in ratios
    )


def heading(console: Console, text: str) -> None:
    """Print a section title."""
    console.print()
    console.print(Text(text, style="bold"))


def indented(console: Console, renderable: RenderableType) -> None:
    """Print under a section title."""
    console.print(Padding(renderable, _INDENT))


def table(*columns: str, rows: Iterable[Sequence[str]], first_left: bool = True) -> Table:
    """Return a borderless table; the first column to the left, the others to the right, words folded, never cut."""
    result = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=any(columns))
    for index, column in enumerate(columns):
        left = index == 0 and first_left
        result.add_column(column, justify="left" if left else "right", overflow="fold", header_style="dim")
    for row in rows:
        result.add_row(*(Text(plain(cell)) for cell in row))
    return result


def pairs(rows: Iterable[tuple[str, str]]) -> Table:
    """Return names and what is to be said of them, both to the left."""
    result = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=False)
    result.add_column(overflow="fold", style="dim", no_wrap=True)
    result.add_column(overflow="fold")
    for name, value in rows:
        result.add_row(Text(name), Text(plain(value)))
    return result


def print_framed(
    console: Console, title: str, headline: str, reasons: Sequence[str], action: str, *, style: str
) -> None:
    """Print a conclusion in a frame of this colour: headline, why, what to do next."""
    lines = [Text(plain(headline), style="bold")]
    lines += [Text(f"- {plain(reason)}") for reason in reasons]
    if action:
        lines.append(Text("Next: ", style="bold").append(plain(action), style=""))
    console.print()
    console.print(Panel(Text("\n").join(lines), title=Text(title), title_align="left", border_style=style))
