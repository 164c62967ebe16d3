"""The table of bounds in ``docs/reliability.md``, from the remarks in ``bounds.py``. ``make render`` writes it."""

from __future__ import annotations

import re
from pathlib import Path

from markdown import filled, table
from specdec_exporter import bounds

RELIABILITY = Path("docs") / "reliability.md"
_BOUND = re.compile(r"^(?P<name>[A-Z_]+): Final = .*?  # (?P<limits>.*?); (?P<beyond>.*)$", re.MULTILINE)
_UNITS = (("MiB", 1 << 20), ("KiB", 1 << 10))


def reliability_page(page: str) -> str:
    """Return the page with the table anew. The other tables of the page are of the runs that measured them."""
    remarks = _BOUND.finditer(Path(bounds.__file__).read_text(encoding="utf-8"))
    rows = [(f"`{found['name']}`", _number(found["name"]), found["limits"], found["beyond"]) for found in remarks]
    return filled(page, {"bounds": table(("Bound", "Number", "Of what", "Beyond it"), rows)})


def _number(name: str) -> str:
    value = getattr(bounds, name)
    if name.endswith("_BYTES"):
        unit, size = next(each for each in _UNITS if value >= each[1])
        return f"{value // size} {unit}"
    return f"{value:,.0f}"
