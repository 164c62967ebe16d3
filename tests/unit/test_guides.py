"""``docs/evidence/guides.yaml``: what three guides ask for, and where it is done. Every place in it exists."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, Literal

import msgspec
import msgspec.yaml
import pytest

from specdec_exporter.commands.cli import COMMANDS
from specdec_exporter.doctor.diagnosis import known_facts
from specdec_exporter.predictor.facts.failures import load_failures
from specdec_exporter.predictor.versions import WARNINGS
from support.fieldtools import ROOT


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a guide asks for. ``where``: ``KIND NAME`` each; ``reason``: why it does not work, or is none of ours."""

    id: str
    item: str
    status: Literal["works", "partly", "missing", "outside"] = "works"
    where: tuple[str, ...] = ()
    reason: str = ""


def rows() -> list[Row]:
    text = (ROOT / "docs/evidence/guides.yaml").read_bytes()
    return [row for guide in msgspec.yaml.decode(text, type=dict[str, tuple[Row, ...]]).values() for row in guide]


@cache
def read(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def panels() -> frozenset[str]:
    def titles(panels: list[dict[str, Any]]) -> set[str]:
        below = {title for panel in panels for title in titles(panel.get("panels", []))}
        return below | {str(panel.get("title")) for panel in panels}

    files = (ROOT / "dashboards" / "rendered").glob("*.json")
    return frozenset(title for file in files for title in titles(json.loads(file.read_text("utf-8"))["panels"]))


# What a row may name, and whether it exists.
EXISTS: dict[str, Callable[[str], bool]] = {
    "command": lambda name: name in COMMANDS,
    "family": lambda name: f"`{name}`" in read("docs/metrics.md"),
    "alert": lambda name: f"- alert: {name}\n" in read("rules/rendered/specdec.rules.yaml"),
    "panel": lambda name: name in panels(),
    "fact": lambda name: name in {fact.code for fact in known_facts()},
    "failure": lambda name: name in load_failures(),
    "warning": lambda name: name in WARNINGS,
    "page": lambda name: (ROOT / name).is_file(),
    "path": lambda name: (ROOT / name).is_file(),
}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_a_row_that_works_names_where_and_every_other_row_a_reason(row: Row) -> None:
    assert (row.status == "works") == (not row.reason)
    assert row.where or row.status != "works"
    kinds = [place.split(" ", 1) for place in row.where]
    assert [name for kind, name in kinds if not EXISTS[kind](name)] == []
