"""One room knows how vLLM spells things, and docs/architecture.md says what another engine would change there."""

from __future__ import annotations

import re

from specdec_exporter.predictor.engines.engine import ENGINES
from specdec_exporter.predictor.metrics.families import meanings
from support.fieldtools import ROOT

PACKAGE = ROOT / "exporter" / "specdec_exporter"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
# Metrics by their full names, and how lines of the log begin.
LINES = ("SpecDecoding metrics", "Speculative metrics", "Avg prompt throughput", "Initializing a", "SamplingParams(")
PREFIXES = [prefix for engine in ENGINES.values() for prefix in engine.prefixes]
NAMES = {name for code in ENGINES for name in meanings(code)}
SPELLED = re.compile("|".join([*map(re.escape, LINES), rf"\b(?:{'|'.join(PREFIXES)})[a-z_]+"]))


def test_nothing_outside_the_room_spells_an_engines_metrics_or_lines() -> None:
    found = {
        (str(path.relative_to(PACKAGE)), spelled)
        for path in PACKAGE.rglob("*")
        if path.suffix in {".py", ".html", ".json", ".yaml"} and path.relative_to(PACKAGE).parts[0] != "predictor"
        for spelled in SPELLED.findall(path.read_text(encoding="utf-8"))
        if spelled in LINES or spelled in NAMES
    }
    assert found == set()


def test_the_page_is_short_and_names_files_that_are_there() -> None:
    assert len(PAGE.split()) <= 1800
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([\w/]+\.py)`", row)]
    assert len(named) >= 6
    assert [name for name in named if not (PACKAGE / "predictor" / name).exists()] == []
