"""Nothing is recorded that nobody reads, and nothing is read that nobody records or serves."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import promql_parser as promql
import pytest

import metrictables
import rulelint
from dashboards.boardlint import parsed, queries
from dashboards.conftest import DASHBOARDS
from dashboards.grafana import Dashboard
from fieldtools import ROOT
from promqllabels import walk

RULES = ROOT / "rules" / "rendered"
METRICS = ROOT / "docs" / "metrics.md"
ONE_EACH = {"specdec_baseline_recorded_timestamp_seconds"}  # of a model, not of an engine
OF_PROMETHEUS = {"ALERTS", "ALERTS_FOR_STATE", "up", "scrape_duration_seconds"}


def names(expr: promql.Expr) -> Iterator[str]:
    """Of the series that an expression selects; what selects by pattern has none."""
    for each in walk(expr):
        if isinstance(each, promql.VectorSelector) and each.name:
            yield each.name


def read_by_dashboards() -> set[str]:
    return {
        name
        for dashboard in DASHBOARDS
        for _, target in queries(dashboard)
        for name in names(parsed(dashboard, target["expr"]))
    }


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


def test_the_status_of_the_fleet_reads_only_what_is_recorded() -> None:
    """A query of every raw series, at each refresh of everybody who looks, is a load of its own."""
    (fleet,) = [dashboard for dashboard in DASHBOARDS if dashboard.name == "specdec-fleet"]
    status = [target for panel in fleet.panels for target in panel.targets if "verdict:enum" in target["expr"]]
    read = {name for target in status for name in names(parsed(fleet, target["expr"]))}

    assert len(status) == 3  # counted, as a column, and to sort by
    recorded = {"specdec_verdict:enum", "specdec_replica:up", "specdec_speedup:ratio30m"}
    assert read == {f"inference_service:{record}" for record in recorded} | {"ALERTS"}


def test_no_panel_of_all_services_reads_their_raw_series() -> None:
    """An engine has hundreds. An exporter has a handful about itself, which only the board of the pack reads."""
    of_engines = {
        family.name
        for _, groups in metrictables.FAMILIES.values()
        for group in groups
        for family in group.families
        if {"engine", "model_name"} & {*group.labels, *family.labels}
    }
    boards = {
        dashboard.name: {
            re.sub(r"_(bucket|sum|count)$", "", name)
            for panel in dashboard.panels
            for target in panel.targets
            for name in names(parsed(dashboard, target["expr"]))
            if name.startswith("specdec_")
        }
        for dashboard in DASHBOARDS
        if any(each["name"] == "inference_service" and each.get("includeAll") for each in dashboard.variables)
    }

    assert boards.keys() == {"specdec-fleet", "specdec-pack"}
    assert boards["specdec-fleet"] == set()
    assert boards["specdec-pack"] & of_engines == ONE_EACH


def test_everything_used_is_recorded_or_served(dashboard: Dashboard) -> None:
    pack = rulelint.load(RULES / "specdec.rules.yaml", {})
    documented = set(re.findall(r"^\| `([a-z_]+)` \|", METRICS.read_text(encoding="utf-8"), re.MULTILINE))
    known = set(pack.records()) | documented | OF_PROMETHEUS

    unknown = {
        name
        for _, target in queries(dashboard)
        for name in names(parsed(dashboard, target["expr"]))
        if re.sub(r"_(bucket|sum|count)$", "", name) not in known
        and name not in known
        and not name.startswith("prometheus_rule_")
    }
    assert unknown == set()
