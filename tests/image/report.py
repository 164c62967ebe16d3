"""The numbers of the image, printed and, with ``SPECDEC_IMAGE_RECORD=1``, written into docs/image.md."""

from __future__ import annotations

import datetime as dt
import os
import sys

from fieldtools import ROOT
from markdown import filled, table

PAGE = ROOT / "docs" / "image.md"


class Report:
    """Collects what was measured, in the order of the tests."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str]] = []

    def add(self, what: str, number: str) -> None:
        self._rows.append((what, number))

    def write(self) -> None:
        text = table(("", "Measured"), self._rows)
        sys.stdout.write(f"\n{text}")
        if os.environ.get("SPECDEC_IMAGE_RECORD"):
            base = "on " + os.environ.get("PYTHON_IMAGE", "the base that `tests/image/base.sh` makes")
            said = f"`make test-image RECORD=1`, {dt.datetime.now(dt.UTC).date()}, {base}:\n\n{text}"
            PAGE.write_text(filled(PAGE.read_text(), {"image": said}))
