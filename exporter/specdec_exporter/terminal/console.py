"""Printing on a terminal or into a pipe: bars, sparklines and progress.

Pipes get no escape sequences, ``NO_COLOR`` switches colours off, and a stream without Unicode gets ASCII. Text from a
log or a predictor loses its control characters. Colour only repeats what words say.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text

_BLOCKS = " ▏▎▍▌▋▊▉█"
_SPARKS = "▁▂▃▄▅▆▇█"
_ASCII_SPARKS = "_.-=+*#@"
_INDENT = (0, 0, 0, 2)


def console_for(stream: TextIO) -> Console:
    """Return a console on ``stream`` without markup; it replaces characters that cannot be encoded."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    return Console(file=stream, markup=False, emoji=False, highlight=False)


def write(stream: TextIO, draw: Callable[[Console], None]) -> None:
    """Write what ``draw`` prints to ``stream`` in one piece; raises BrokenPipeError if the reader is gone."""
    console = console_for(stream)
    with console.capture() as captured:  # without this, rich ends the process at a broken pipe
        draw(console)
    stream.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    stream.flush()


@contextmanager
def reading_progress(stream: TextIO, total_bytes: int, *, live: bool) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; give the function to call with the bytes read so far.

    ``live`` means that the end is not known, as in a pipe.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn  # noqa: PLC0415  most runs show no bar

    columns = (TextColumn("Reading"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=console_for(stream), transient=True) as progress:
        task = progress.add_task("", total=None if live else total_bytes)
        yield lambda done: progress.update(task, completed=done)


@contextmanager
def working(stream: TextIO, text: str) -> Iterator[None]:
    """Show ``text`` on a terminal for as long as something takes."""
    if not stream.isatty():
        yield
        return
    with console_for(stream).status(Text(text), spinner="line"):
        yield


@contextmanager
def time_progress(stream: TextIO, text: str, seconds: float) -> Iterator[None]:
    """Show ``text`` on a terminal, and how much of the time has passed."""
    if not stream.isatty():
        yield
        return
    stream.write(f"{text}\n")
    stream.flush()
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TimeRemainingColumn  # noqa: PLC0415  as above

    class Clock(Progress):
        """Its thread draws several times a second."""

        def get_renderables(self) -> Iterable[RenderableType]:
            for task in self.tasks:
                self.update(task.id, completed=task.elapsed)
            return super().get_renderables()

    columns = (BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Clock(*columns, console=console_for(stream), transient=True) as progress:
        progress.add_task("", total=seconds)
        yield


def is_ascii_only(console: Console) -> bool:
    """Whether the stream cannot encode block characters."""
    return console.options.ascii_only


def bar(ratio: float | None, cells: int, *, ascii_only: bool) -> str:
    """Return a bar for ``ratio`` (0..1), in eighths of ``cells`` characters; a dash for ``None``.

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
    """Return one character per ratio, on the fixed scale 0..1 so that two lines compare; a blank for ``None``."""
    levels = _ASCII_SPARKS if ascii_only else _SPARKS
    top = len(levels) - 1
    return "".join(
        " " if ratio is None else levels[min(top, int(min(max(ratio, 0.0), 1.0) * len(levels)))] for ratio in ratios
    )


def heading(console: Console, text: str, *parts: RenderableType) -> None:
    """Print a section title, and ``parts`` under it."""
    console.print()
    console.print(Text(text, style="bold"))
    for part in parts:
        indented(console, part)


def indented(console: Console, part: RenderableType) -> None:
    """Print under a section title; a ``str`` is a note of ours."""
    console.print(Padding(Text(part, style="dim") if isinstance(part, str) else part, _INDENT))
