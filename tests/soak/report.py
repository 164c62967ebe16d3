"""The tables of docs/reliability.md, each written by the run that measured it."""

from __future__ import annotations

import argparse
import datetime as dt
import platform
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from markdown import filled, table

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"


def seeded(description: str | None) -> argparse.ArgumentParser:
    """A command line with ``--seed``, at random unless it repeats a run."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    return parser


def record(name: str, command: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Put a table under its marker, with the date and the command that repeats it."""
    day = dt.datetime.now(dt.UTC).date()
    text = f"`{command}`, {day}, Python {platform.python_version()}:\n\n{table(header, rows)}"
    PAGE.write_text(filled(PAGE.read_text(), {name: text}))
