"""Tables of the pages about measurements, each written by the run that measured it."""

from __future__ import annotations

import argparse
import datetime as dt
import platform
from collections.abc import Iterable, Sequence
from pathlib import Path

from generated import filled, table
from support.fieldtools import ROOT

EVIDENCE = ROOT / "docs" / "evidence"


def recording(description: str | None) -> argparse.ArgumentParser:
    """A command line with ``--record``, without which a table is only printed."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--record", action="store_true", help="write the table into docs/evidence/")
    return parser


def measured_by(command: str) -> str:
    """The line above a table: what repeats it, and when it was measured."""
    return f"`{command}`, {dt.datetime.now(dt.UTC).date()}, Python {platform.python_version()}:\n\n"


def record(page: Path, name: str, header: Sequence[str], rows: Iterable[Sequence[str]], above: str = "") -> None:
    """Put a table, and a text above it, under its marker."""
    page.write_text(filled(page.read_text(), {name: above + table(header, rows)}))


class Transcript:
    """Tables that the tests of a run fill, by the names of their markers."""

    def __init__(self) -> None:
        self._tables: dict[str, list[dict[str, str]]] = {}

    def row(self, name: str, **row: str) -> None:
        """Add a row to a table. Keywords name its columns; an underscore is a space."""
        self._tables.setdefault(name, []).append({key.replace("_", " "): text for key, text in row.items()})

    def show(self) -> None:
        """Print all tables."""
        for name, rows in self._tables.items():
            print(f"\n{name}\n{table([*rows[0]], [[*row.values()] for row in rows])}")

    def write(self, page: Path, above: str = "") -> None:
        """Put them into a page."""
        for name, rows in self._tables.items():
            record(page, name, [*rows[0]], [[*row.values()] for row in rows], above)
