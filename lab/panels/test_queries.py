"""Every query of the dashboards, put to a real Prometheus as Grafana would put it, for services in every state."""

from __future__ import annotations

import math

import pytest

from dashboards.grafana import COLUMNS, SCREEN_PIXELS, Dashboard, Json, Panel
from panels.cast import REPLICAS, VIEWS
from panels.conftest import Looked
from panels.database import NOW, RULES_FROM, Database
from panels.frames import Answer, labels_in_legend

# Of one query: more lines than this nobody can tell apart; tables have a row for each service.
MAX_SERIES = {"table": 100}
MAX_SERIES_OF_OTHERS = 20
# Panels that have nothing to say about a healthy service.
QUIET_WHILE_HEALTHY = {
    "Firing alerts: since when, and what to do first",
    "Replicas with another verdict",
    "Requests in the tail",  # of a live control no boundaries are kept
}
# Of one cluster, without speculation or a model that drafts, of an alert with one cause, of a service that does not
# answer.
MAY_BE_MISSING = {"cluster", "namespace", "method", "draft_model", "reason", "model_name"}

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def looked(base: Database) -> Looked:
    return Looked(base)


def told(panel: Panel, answer: Answer) -> str:
    return f"{panel}, {answer.target['refId']}: {' '.join(answer.expression.split())}"


def test_prometheus_answers_with_numbers(dashboard: Dashboard, looked: Looked) -> None:
    wrong = [
        f"{state}: {told(panel, answer)}"
        for state, panel, answer in looked.everywhere(dashboard)
        if not all(math.isfinite(value) for value in answer.values)
    ]

    assert wrong == []


def test_no_panel_drowns_in_series(dashboard: Dashboard, looked: Looked) -> None:
    crowded = {
        f"{state}: {told(panel, answer)}": len(answer.series)
        for state, panel, answer in looked.everywhere(dashboard)
        if len(answer.series) > MAX_SERIES.get(panel.type, MAX_SERIES_OF_OTHERS)
    }

    assert crowded == {}


def test_tables_fit_on_the_screen(dashboard: Dashboard, looked: Looked) -> None:
    """What is beyond the right edge nobody scrolls to."""
    for panel, fields in looked.fields(dashboard.name, "healthy"):
        if panel.type == "table":
            shown = [custom for field in fields if not (custom := field["custom"]).get("hidden")]
            wanted = sum(custom.get("width") or custom.get("minWidth") or 150 for custom in shown)
            assert wanted <= SCREEN_PIXELS * panel.json["gridPos"]["w"] / COLUMNS - 16, str(panel)


def rows(looked: Looked, dashboard: str, state: str, title: str) -> list[Json]:
    """A table as it stands there: rows by the titles of their columns."""
    (fields,) = [fields for panel, fields in looked.fields(dashboard, state) if panel.title == title]
    names = [field["name"] for field in fields]
    return [dict(zip(names, cells, strict=True)) for cells in zip(*(field["values"] for field in fields), strict=True)]


def test_what_hurts_comes_first(looked: Looked, base: Database) -> None:
    """However healthy a service is otherwise: somebody was woken, or has a task."""
    severities: dict[str, set[str]] = {}
    for alert in base.instant('ALERTS{alertstate="firing"}', NOW):
        if service := alert["metric"].get("inference_service"):
            severities.setdefault(service, set()).add(alert["metric"]["severity"])

    def hurts(service: object) -> int:
        found = severities.get(str(service), set())
        return 2 if "critical" in found else 1 if "warning" in found else 0

    services = [row["Service"] for row in rows(looked, "specdec-fleet", "healthy", "Services")]

    assert sorted(map(str, services)) == sorted({replica.service for replica in REPLICAS})
    assert {hurts(service) for service in services} == {0, 1, 2}
    assert [hurts(service) for service in services] == sorted(map(hurts, services), reverse=True)


def test_a_canary_is_shown_beside_the_verdict_of_most_tokens(looked: Looked) -> None:
    (stat,) = [asked for panel, asked in looked.answers("specdec-service", "canary") if panel.title == "Verdict"]
    canaries = rows(looked, "specdec-service", "canary", "Replicas with another verdict")

    assert [series["metric"]["verdict"] for series in stat[0].series] == ["not_measured"]
    assert [(row["Pod"], row["Revision"], row["Verdict"]) for row in canaries] == [
        ("mail-canary", "mail-7c4b", "broken")
    ]
    assert rows(looked, "specdec-service", "collapse", "Replicas with another verdict") == []


@pytest.mark.parametrize(("dashboard", "state"), [("specdec-fleet", "healthy"), ("specdec-service", "collapse")])
def test_the_alert_table_says_since_when(dashboard: str, state: str, looked: Looked) -> None:
    found = rows(looked, dashboard, state, "Firing alerts: since when, and what to do first")

    assert found
    for row in found:
        assert row["Severity"] in (2, 3), row
        assert RULES_FROM <= row["Since"] / 1000 < NOW, row


def test_every_query_finds_something_somewhere(dashboard: Dashboard, looked: Looked) -> None:
    queries = {(str(panel), answer.target["refId"]) for _, panel, answer in looked.everywhere(dashboard)}
    found = {(str(panel), answer.target["refId"]) for _, panel, answer in looked.everywhere(dashboard) if answer.series}

    assert queries - found == set()


def test_every_panel_of_a_healthy_service_shows_something(dashboard: Dashboard, looked: Looked) -> None:
    empty = [
        panel.title
        for panel, answers in looked.answers(dashboard.name, "healthy")
        if answers and not any(answer.series for answer in answers)
    ]

    assert [title for title in empty if title not in QUIET_WHILE_HEALTHY] == []


def test_every_label_that_a_legend_prints_is_there(dashboard: Dashboard, looked: Looked) -> None:
    missing = {
        f"{told(panel, answer)} has no {label}"
        for _, panel, answer in looked.everywhere(dashboard)
        for label in labels_in_legend(answer.target) - MAY_BE_MISSING
        for series in answer.series
        if not series["metric"].get(label)
    }

    assert missing == set()


def test_series_of_one_panel_have_names_of_their_own(dashboard: Dashboard, looked: Looked) -> None:
    twice = set()
    for state in VIEWS:
        for panel, fields in looked.fields(dashboard.name, state):
            names = [field["name"] for field in fields if field["type"] != "time"]
            if panel.type != "table" and len(names) != len(set(names)):
                twice.add(f"{state}: {panel}: {sorted(name for name in set(names) if names.count(name) > 1)}")

    assert twice == set()


def test_every_variable_offers_something(dashboard: Dashboard, looked: Looked) -> None:
    variables = looked.view(dashboard.name, "healthy").variables

    assert [name for name, variable in variables.items() if not variable.choices] == []


def test_every_service_can_be_chosen_without_a_cluster(dashboard: Dashboard, looked: Looked) -> None:
    """All clusters includes none: in installations with one, series have no such label."""
    variables = looked.view(dashboard.name, "single cluster").variables
    if "inference_service" in variables:
        assert set(VIEWS.values()) <= set(variables["inference_service"].choices)


def test_every_annotation_marks_something(dashboard: Dashboard, looked: Looked) -> None:
    for annotation in dashboard.annotations:
        answers = [looked.view(dashboard.name, state).annotate(annotation) for state in VIEWS]
        assert any(answer.series for answer in answers), annotation["name"]
        printed = labels_in_legend({"legendFormat": f"{annotation['titleFormat']} {annotation.get('textFormat')}"})
        for series in (series for answer in answers for series in answer.series):
            assert printed - MAY_BE_MISSING <= series["metric"].keys(), annotation["name"]
