"""A command and its caller: complaints on stderr, a stdout that its reader may close, signals."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import click

from specdec_exporter.commands import PROG


def complain(failures: Iterable[str]) -> None:
    """Print one line for each input that could not be read."""
    for words in failures:
        click.echo(f"{PROG}: {words}", err=True)


@contextmanager
def closable_stdout() -> Iterator[None]:
    """End quietly if the reader of stdout closes it."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        with suppress(OSError, ValueError):  # the interpreter's last flush must not fail
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)


def stop_at_signals() -> asyncio.Event:
    """Return an event that Ctrl-C and SIGTERM set from now on, in the running event loop."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop
