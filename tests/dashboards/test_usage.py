"""Nothing is recorded that nobody reads, and nothing is read that nobody records or serves, as it was served before."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import promql_parser as promql
import pytest

import metrictables
from dashboards.conftest import DASHBOARDS
from support import rulelint
from support.fieldtools import ROOT
from support.promqllabels import walk

RULES = ROOT / "rules" / "rendered"
READ = ROOT / "tests" / "golden" / "families-read.txt"
# Of a model, not of an engine.
ONE_EACH = {"specdec_baseline_recorded_timestamp_seconds", "specdec_baseline_load_ratio"}
OF_PROMETHEUS = {"ALERTS", "ALERTS_FOR_STATE"}


def names(expr: promql.Expr) -> Iterator[str]:
    """Of the series that an expression selects; what selects by pattern has none."""
    for each in walk(expr):
        if isinstance(each, promql.VectorSelector) and each.name:
            yield each.name


def read_by_dashboards() -> set[str]:
    return {name for dashboard in DASHBOARDS for _, tree in dashboard.expressions for name in names(tree)}


def families() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Name, type and labels of what the exporter serves."""
    for _, groups in metrictables.FAMILIES.values():
        for group in groups:
            yield from ((family.name, family.type, (*group.labels, *family.labels)) for family in group.families)


def family(series: str) -> str:
    """The name of the family that has a series."""
    return re.sub(r"_(bucket|sum|count)$", "", series)


@pytest.mark.parametrize(
    "path", [RULES / "specdec.rules.yaml", RULES / "specdec-vllm.rules.yaml"], ids=lambda p: p.name
)
def test_everything_recorded_is_used(path: Path) -> None:
    pack = rulelint.load(path, {})
    used = read_by_dashboards()
    for rule in pack.rules:
        used |= {name for name in names(rule.expr) if rule.is_alert or name != rule.name}
        text = " ".join(rule.annotations.values())
        used |= set(re.findall(r"[a-z_]+:[a-z0-9_]+:[a-z0-9_]+", text))

    assert set(pack.records()) - used == set()


def test_no_panel_of_all_services_reads_their_raw_series() -> None:
    """An engine has hundreds. An exporter has a handful about itself, which only the board of the pack reads."""
    of_engines = {name for name, _, labels in families() if {"engine", "model_name"} & {*labels}}
    boards = {
        dashboard.name: {
            family(name)
            for whose, tree in dashboard.expressions
            for name in names(tree)
            if name.startswith("specdec_") and not whose.startswith("annotation")
        }
        for dashboard in DASHBOARDS
        if any(each["name"] == "inference_service" and each.get("includeAll") for each in dashboard.variables)
    }

    assert boards.keys() == {"specdec-fleet", "specdec-pack"}
    assert boards["specdec-fleet"] == set()
    assert boards["specdec-pack"] & of_engines == ONE_EACH


def test_everything_used_is_recorded_or_served() -> None:
    pack = rulelint.load(RULES / "specdec.rules.yaml", {})
    known = set(pack.records()) | {name for name, *_ in families()} | OF_PROMETHEUS

    assert {name for name in read_by_dashboards() if not {name, family(name)} & known} == set()


def test_the_families_that_are_read_are_served_as_they_were() -> None:
    rules = rulelint.load(RULES / "specdec.rules.yaml", {}).rules
    series = read_by_dashboards() | {name for rule in rules for name in names(rule.expr)}
    read = {family(name) for name in series if re.match(r"specdec_[a-z_]+$", name)}
    served = {name: f"{name} {kind} {','.join(labels)}" for name, kind, labels in families()}

    assert [served.get(name, f"{name} is not served") for name in sorted(read)] == READ.read_text().splitlines()
