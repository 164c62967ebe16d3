"""``docs/evidence/guides.md``: how much of what three guides ask for is done, from ``guides.yaml`` beside it.

``make render`` writes it. Every place that a row names must exist, or the page is not made.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import msgspec
import msgspec.yaml

from generated import filled, table
from specdec_exporter.commands.cli import COMMANDS
from specdec_exporter.doctor.diagnosis import known_facts
from specdec_exporter.predictor.facts.failures import load_failures
from specdec_exporter.predictor.versions import WARNINGS

ROOT = Path(__file__).resolve().parent.parent
GUIDES = Path("docs") / "evidence" / "guides.md"


Status = Literal["works", "partly", "missing", "outside"]


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a guide asks for. ``where``: ``KIND NAME`` each; ``reason``: why it does not work, or is none of ours."""

    id: str
    item: str
    status: Status = "works"
    where: tuple[str, ...] = ()
    reason: str = ""

    def __post_init__(self) -> None:
        if (self.status == "works") != (not self.reason) or (self.status == "works" and not self.where):
            raise ValueError(f"{self.id}: a row that works names where, every other row a reason")


@cache
def load_guides() -> dict[str, tuple[Row, ...]]:
    """Return the rows by guide."""
    return msgspec.yaml.decode((ROOT / GUIDES).with_suffix(".yaml").read_bytes(), type=dict[str, tuple[Row, ...]])


def guides_page(page: str) -> str:
    """Return the page with its table anew. Raises ValueError for a place that does not exist."""
    guides = load_guides()
    for row in (row for rows in guides.values() for row in rows):
        for place in row.where:
            _check(row.id, *place.split(" ", 1))
    return filled(page, {"guide counts": _counts(guides)})


def _counts(guides: dict[str, tuple[Row, ...]]) -> str:
    columns: tuple[Status, ...] = get_args(Status)
    rows = []
    for name, found in guides.items():
        counted = Counter(row.status for row in found)
        rows.append((name, str(len(found)), *(str(counted[status]) for status in columns)))
    total = [str(sum(int(row[column]) for row in rows)) for column in range(1, 6)]
    return table(("Guide", "Rows", *columns), [*rows, ("all", *total)])


def _check(row: str, kind: str, name: str) -> None:
    if not _KINDS[kind](name):
        raise ValueError(f"guides.yaml, {row}: there is no {kind} {name}")


@cache
def _panels() -> frozenset[str]:
    def titles(panels: list[dict[str, object]]) -> set[str]:
        below = {title for panel in panels for title in titles(panel.get("panels", []))}  # type: ignore[arg-type]
        return below | {str(panel.get("title")) for panel in panels}

    files = (ROOT / "dashboards" / "rendered").glob("*.json")
    return frozenset(title for file in files for title in titles(json.loads(file.read_text("utf-8"))["panels"]))


@cache
def _read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


_FACTS = frozenset(fact.code for fact in known_facts())
_FAILURES = frozenset(load_failures())
# What a row may name, and whether it exists.
_KINDS: dict[str, Callable[[str], bool]] = {
    "command": lambda name: name in COMMANDS,
    "family": lambda name: f"`{name}`" in _read("docs/metrics.md"),
    "alert": lambda name: f"- alert: {name}\n" in _read("rules/rendered/specdec.rules.yaml"),
    "panel": lambda name: name in _panels(),
    "fact": lambda name: name in _FACTS,
    "failure": lambda name: name in _FAILURES,
    "warning": lambda name: name in WARNINGS,
    "page": lambda name: (ROOT / name).is_file(),
    "path": lambda name: (ROOT / name).is_file(),
}
