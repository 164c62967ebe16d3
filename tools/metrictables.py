"""The tables of ``docs/metrics.md``, from the code that they describe. ``make render`` writes them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from markdown import filled, table
from specdec_exporter.predictor.versions import WARNINGS, releases_in_words
from specdec_exporter.serving import families
from specdec_exporter.serving.families import ENGINE, MODEL, SERVICE, STATES, Family, Group, filled_in

METRICS = Path("docs") / "metrics.md"
WINDOW = "`--window`"
_LABELS = {ENGINE: "engine", MODEL: "model", SERVICE: "service", (): ""}
# Name of a table -> the title of its last column, and the groups of families in it.
FAMILIES: dict[str, tuple[str, tuple[Group[Any], ...]]] = {
    "copied": ("Also absent", (families.COPIED,)),
    "derived": ("Absent", (families.DERIVED, families.WINDOWS)),
    "log": ("Absent", (families.LOG,)),
    "predictor": ("Absent", (families.PREDICTOR, families.PREDICTOR_LOG, families.POLICY)),
    "benefit": ("Absent", (families.BENEFIT,)),
    "load": ("Also absent", (families.LOAD,)),
    "baseline": ("Also absent", (families.BASELINE,)),
    "scrapes": ("Absent", (families.SCRAPE, families.READER)),
    "exporter": ("Absent", (families.EXPORTER, families.PROCESS)),
}


def metrics_page(page: str) -> str:
    """Return the page with every table anew between its markers."""
    tables = {name: _families(absent, groups) for name, (absent, groups) in FAMILIES.items()}
    tables["states"] = table(
        ("State", "Meaning"), ((f"`{name}`", filled_in(meaning, WINDOW)) for name, meaning in STATES.items())
    )
    tables["warnings"] = table(
        ("Warning", "Releases", "Meaning", "What to do"),
        (
            (f"`{code}`", releases_in_words(warning.since, warning.until), warning.meaning, warning.action)
            for code, warning in WARNINGS.items()
        ),
    )
    return filled(page, tables)


def _families(absent: str, groups: Iterable[Group[Any]]) -> str:
    rows = [_family(group, family) for group in groups for family in group.families]
    return table(("Family", "Type", "Labels", "Meaning", "Source", absent), rows)


def _family(group: Group[Any], family: Family[Any]) -> tuple[str, ...]:
    labels = ", ".join(filter(None, (_LABELS[group.labels], *(f"`{label}`" for label in family.labels))))
    texts = (family.meaning, family.source, family.absent or group.absent)
    return (f"`{family.name}`", family.type, labels, *(filled_in(text, WINDOW) for text in texts))
