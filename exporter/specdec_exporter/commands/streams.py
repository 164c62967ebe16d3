"""A command and its caller: complaints on stderr, a stdout that its reader may close, signals."""

from __future__ import annotations

import errno
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from specdec_exporter.commands import PROG
from specdec_exporter.errors import SpecdecError

if TYPE_CHECKING:
    import asyncio

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def complain(complaints: Iterable[str]) -> None:
    """Print one line on stderr for each complaint."""
    for words in complaints:
        click.echo(f"{PROG}: {words}", err=True)


def misuse(error: click.UsageError) -> str:
    """Return on one line what is wrong with the command line, and where its help is."""
    command = error.ctx.command_path if error.ctx else PROG
    return f"{' '.join(error.format_message().split())} (see {command} --help)"


@contextmanager
def closable_stdout() -> Iterator[None]:
    """End quietly if the reader of stdout closes it; raise :class:`SpecdecError` if its disk is full."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in (errno.EPIPE, *_DISK_FULL):
            raise
        with suppress(OSError, ValueError):  # the interpreter's last flush must not fail
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        if error.errno in _DISK_FULL:
            raise SpecdecError(f"the output cannot be written: {error.strerror}") from error


@contextmanager
def stdout_in(path: str) -> Iterator[None]:
    """Write to a file what would go to stdout. Raises :class:`SpecdecError` if it cannot be opened."""
    try:
        file = Path(path).open("w", encoding="utf-8")  # noqa: SIM115  closed below
    except OSError as error:
        raise SpecdecError(f"{path}: cannot be written: {error.strerror}") from error
    with file, redirect_stdout(file):
        yield


def stop_at_signals() -> asyncio.Event:
    """Return an event that Ctrl-C and SIGTERM set from now on, in the running event loop."""
    import asyncio  # neither --version nor --help needs an event loop

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
