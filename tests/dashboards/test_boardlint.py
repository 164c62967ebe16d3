"""The checks are content with the dashboards, and would not be with anything."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from dashboards.boardlint import CHECKS
from dashboards.grafana import Dashboard

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TINY: dict[str, Any] = {
    "uid": "tiny",
    "title": "Tiny",
    "description": "A dashboard of one panel.",
    "schemaVersion": 39,
    "editable": False,
    "refresh": "1m",
    "tags": ["specdec"],
    "time": {"from": "now-6h", "to": "now"},
    "templating": {
        "list": [
            {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
            {
                "name": "cluster",
                "label": "Cluster",
                "type": "query",
                "datasource": SOURCE,
                "query": "label_values(specdec_up, cluster)",
                "refresh": 2,
                "includeAll": True,
                "multi": True,
                "allValue": ".*",
            },
        ]
    },
    "panels": [
        {
            "id": 1,
            "type": "timeseries",
            "title": "Drafts",
            "description": "Drafts per second.",
            "datasource": SOURCE,
            "interval": "1m",
            "gridPos": {"x": 0, "y": 0, "w": 12, "h": 8},
            "targets": [
                {
                    "refId": "A",
                    "expr": 'sum(rate(specdec_drafts_total{cluster=~"$cluster"}[$__rate_interval]))',
                    "legendFormat": "drafts",
                }
            ],
            "fieldConfig": {"defaults": {"unit": "suffix:/s", "noValue": "No drafts."}, "overrides": []},
        }
    ],
}


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Set what stands at ``panels.0.title``."""

    def apply(document: dict[str, Any]) -> None:
        *way, last = path.split(".")
        place: Any = document
        for key in way:
            place = place[int(key)] if key.isdigit() else place[key]
        place[last] = value

    return apply


EXPRESSION = "panels.0.targets.0.expr"
CLUSTER = "templating.list.1"
DEFAULTS = "panels.0.fieldConfig.defaults"
FAULTS = {
    "editable": ("frame", change("editable", value=True)),
    "schema": ("frame", change("schemaVersion", 41)),
    "a data source of one's own": ("variables", change("templating.list.0.query", "loki")),
    "all that needs the label": ("variables", change(f"{CLUSTER}.allValue", ".+")),
    "a variable that comes later": ("variables", change(f"{CLUSTER}.query", 'label_values(up{pod="$pod"}, cluster)')),
    "an unused variable": ("variables", change(f"{CLUSTER}.name", "region")),
    "no description": ("panels", change("panels.0.description", "")),
    "no unit": ("panels", change("panels.0.fieldConfig.defaults", {"noValue": "No drafts."})),
    "an axis to 10000%": ("panels", change(DEFAULTS, {"unit": "percentunit", "min": 0, "noValue": "No drafts."})),
    "a limit out of sight": ("panels", change(f"{DEFAULTS}.custom", {"thresholdsStyle": {"mode": "dashed"}})),
    "silence about no data": ("panels", change("panels.0.fieldConfig.defaults.noValue", "")),
    "a raw legend": ("panels", change("panels.0.targets.0.legendFormat", "__auto")),
    "no PromQL": ("expressions", change(EXPRESSION, "sum(rate(x)")),
    "a job": ("expressions", change(EXPRESSION, 'specdec_up{cluster=~"$cluster", job="predictors"}')),
    "everybody's series": ("expressions", change(EXPRESSION, "sum(specdec_up)")),
    "a short range": ("expressions", change(EXPRESSION, 'rate(specdec_drafts_total{cluster=~"$cluster"}[2m])')),
    "a range of one step": (
        "expressions",
        change(EXPRESSION, 'rate(specdec_drafts_total{cluster=~"$cluster"}[$__interval])'),
    ),
    "a raw counter": ("counters", change(EXPRESSION, 'specdec_drafts_total{cluster=~"$cluster"}')),
    "Grafana's own interval": ("steps", change("panels.0.interval", None)),
}


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_is_content_with_the_dashboard(check: str, dashboard: Dashboard) -> None:
    assert list(CHECKS[check](dashboard)) == []


@pytest.mark.parametrize("check", CHECKS)
def test_a_check_is_content_with_a_sound_one(check: str) -> None:
    assert list(CHECKS[check](Dashboard("tiny", TINY))) == []


@pytest.mark.parametrize("fault", FAULTS)
def test_a_check_finds(fault: str) -> None:
    check, spoil = FAULTS[fault]
    document = copy.deepcopy(TINY)
    spoil(document)

    assert list(CHECKS[check](Dashboard("tiny", document))) != []
