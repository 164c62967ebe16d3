"""The tables of ``docs/metrics.md``, from the code that they describe. ``make render`` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from generated import filled, table
from specdec_exporter.serving.families.baseline import BASELINE, BASELINE_LOAD
from specdec_exporter.serving.families.benefit import BENEFIT, LOAD, POLICY
from specdec_exporter.serving.families.counts import COPIED, DRAFTS
from specdec_exporter.serving.families.derived import DERIVED, WINDOWS
from specdec_exporter.serving.families.exporter import EXPORTER, REASONS, SCRAPE
from specdec_exporter.serving.families.family import ENGINE, MODEL, SERVICE, Family, Group, counter, filled_in, gauge
from specdec_exporter.serving.families.log import LOG, PREDICTOR_LOG, READER
from specdec_exporter.serving.families.predictor import PREDICTOR, STATES, VERDICT
from specdec_exporter.state.problems import PROBLEMS

METRICS = Path("docs") / "metrics.md"
WINDOW = "`--window`"
_LABELS = {ENGINE: "engine", MODEL: "model", SERVICE: "service", (): ""}


def _of_the_client(_: object) -> None:
    """Give no value: prometheus_client serves these families of this process."""


CLIENT: Group[object] = Group(
    (),
    (
        gauge("process_virtual_memory_bytes", "Virtual memory.", _of_the_client),
        gauge("process_resident_memory_bytes", "Resident memory.", _of_the_client),
        gauge("process_start_time_seconds", "Start, Unix time.", _of_the_client),
        counter("process_cpu_seconds_total", "Seconds of CPU time.", _of_the_client),
        gauge("process_open_fds", "Open file descriptors.", _of_the_client),
        gauge("process_max_fds", "Most file descriptors it may open.", _of_the_client),
        gauge(
            "python_info",
            "1, with the release of Python as labels.",
            _of_the_client,
            labels=("version", "implementation", "major", "minor", "patchlevel"),
        ),
    ),
)

# Name of a table -> the title of its last column, if it has one, and the groups of families in it.
FAMILIES: dict[str, tuple[str, tuple[Group[Any], ...]]] = {
    "copied": ("Also absent", (DRAFTS, COPIED)),
    "derived": ("Absent", (DERIVED, WINDOWS)),
    "log": ("", (LOG,)),
    "predictor": ("", (PREDICTOR, PREDICTOR_LOG, VERDICT, POLICY)),
    "benefit": ("Absent", (BENEFIT,)),
    "load": ("", (LOAD,)),
    "baseline": ("Absent", (BASELINE, BASELINE_LOAD)),
    "scrapes": ("", (SCRAPE, READER)),
    "exporter": ("", (EXPORTER, CLIENT)),
}


def metrics_page(page: str) -> str:
    """Return the page with every table anew between its markers."""
    tables = {name: _families(name, absent, groups) for name, (absent, groups) in FAMILIES.items()}
    tables["states"] = table(
        ("State", "Meaning"), ((f"`{name}`", filled_in(meaning, WINDOW)) for name, meaning in STATES.items())
    )
    tables["problems"] = table(
        ("Reason", "Meaning"), ((f"`{name}`", filled_in(meaning, WINDOW)) for name, meaning in PROBLEMS.items())
    )
    tables["reasons"] = table(("Reason", "Meaning"), ((f"`{name}`", meaning) for name, meaning in REASONS.items()))
    return filled(page, tables)


def _families(name: str, absent: str, groups: Iterable[Group[Any]]) -> str:
    rows = [_family(name, group, family) for group in groups for family in group.families]
    return table(("Family", "Type", "Labels", "Meaning", "Source", absent), rows)


def _family(table_name: str, group: Group[Any], family: Family[Any]) -> tuple[str, ...]:
    """A row. Only the first sentence of the meaning, because ``/metrics`` has all of it."""
    labels = ", ".join(filter(None, (_LABELS[group.labels], *(f"`{label}`" for label in family.labels))))
    meaning = re.split(r"(?<=\.) (?=[A-Z`])", family.meaning, maxsplit=1)[0]
    source = family.source if table_name == "copied" else ""
    texts = (meaning, source, family.absent if FAMILIES[table_name][0] else "")
    return (f"`{family.name}`", family.type, labels, *(filled_in(text, WINDOW) for text in texts))
