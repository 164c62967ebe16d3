"""Complaints on stderr, and a stdout that its reader has closed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from typing import TextIO

from specdec_exporter.commands import PROG


def complain(failures: Iterable[str], stderr: TextIO) -> None:
    """Print one line for each input that could not be read."""
    for words in failures:
        print(f"{PROG}: {words}", file=stderr)


def discard(stdout: TextIO) -> None:
    """Point ``stdout`` at /dev/null, so that the interpreter's last flush does not fail."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stdout.fileno())
        os.close(nowhere)
