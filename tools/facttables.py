"""The tables of ``docs/facts.md``, from ``running.yaml`` and ``doctor/facts.yaml``. ``make render`` writes them."""

from __future__ import annotations

import re
from pathlib import Path

from markdown import filled, table
from specdec_exporter.doctor.diagnosis import known_facts
from specdec_exporter.predictor.facts.known import Fact, load_facts

FACTS = Path("docs") / "facts.md"
_COLUMNS = ("Fact", "Level", "Releases", "What is found", "What to do", "Source", "Read in")
_ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")


def facts_page(page: str) -> str:
    """Return the page with its tables anew between their markers, in the order of the files."""
    running, every = load_facts(), known_facts()
    tables = {"running": running, "doctor": every[len(running) :]}
    return filled(page, {name: table(_COLUMNS, map(_row, facts)) for name, facts in tables.items()})


def _row(fact: Fact) -> tuple[str, ...]:
    return (
        f"`{fact.code}`",
        fact.level,
        fact.releases,
        _FIELD.sub(r"`\1`", fact.found),
        _FIELD.sub(r"`\1`", fact.action),
        ", ".join(map(_source, fact.sources)),
        ", ".join(fact.checked) or f"not read: {fact.unchecked}",
    )


# A field of the deployment, which the page and the commands replace by its value.
_FIELD = re.compile(r"(\{\w+\})")


def _source(source: str) -> str:
    if found := _ISSUE.fullmatch(source):
        return f"[{source}](https://github.com/{found[1]}/issues/{found[2]})"
    return f"`{source}`" if source.startswith("vllm/") else source
