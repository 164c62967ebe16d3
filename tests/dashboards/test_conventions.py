"""What the dashboards keep to that Grafana's dashboard-linter does not ask, or of some types of panels only.

Its types hold the rest of the JSON (test_schema.py), and what it shows holds units, names and texts of no data
(lab/panels).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import promql_parser as promql

from dashboards.conftest import DASHBOARDS
from dashboards.grafana import (
    CHARACTER_PIXELS,
    COLUMNS,
    SCRAPE_SECONDS,
    SCREEN_PIXELS,
    Dashboard,
)
from support.promqllabels import children, walk

SCHEMA = 39  # Grafana 10.4's: older releases refuse newer ones, newer ones migrate
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
TITLE_CHARACTER_PIXELS = 7.2  # of Grafana's 14 pixels
COUNTED = re.compile(
    r"(sum|count)( by \([^)]*\) )?\((increase\()?"
    r"specdec_(requests_(running|waiting)|(preemptions|predictor_warnings|fetch_failures)_total|up|exporter_build_info)"
)
LEVEL = {"cluster", "namespace", "inference_service"}


def test_a_dashboard_says_what_it_is(dashboard: Dashboard) -> None:
    given = dashboard.json

    assert given["schemaVersion"] <= SCHEMA
    assert given.get("id") is None, "a number of one Grafana's database"
    assert "specdec" in given["tags"], "how the dashboards are found"
    assert [name for name in ("uid", "title", "description", "refresh", "time") if not given.get(name)] == []


def test_everything_is_asked_of_the_chosen_data_source(dashboard: Dashboard) -> None:
    panels = [panel.json for panel in dashboard.panels]
    variables = [each for each in dashboard.variables if each["type"] == "query"]
    asked = [each.get("datasource") for each in [*panels, *variables, *dashboard.annotations]]
    asked += [target.get("datasource", SOURCE) for panel in panels for target in panel["targets"]]

    assert [source for source in asked if source != SOURCE] == []


def test_variables_have_labels_and_uses_and_are_narrowed_by_those_before(dashboard: Dashboard) -> None:
    text = str([panel.json for panel in dashboard.panels]) + str(dashboard.annotations) + str(dashboard.variables)
    before: set[str] = set()
    for each in dashboard.variables:
        name = each["name"]
        assert each.get("label"), name
        assert re.search(rf"\$\{{?{name}\b", text), f"nothing uses {name}"
        if each["type"] == "query":
            several = each.get("multi") or each.get("includeAll")
            assert not several or each["allValue"] in (".*", ".+"), "a long list makes too long a query"
            assert before & {"cluster", "namespace"} <= set(re.findall(r"\$(\w+)", each["query"]["query"])), name
        before.add(name)


def test_panels_say_what_they_are_and_ask_as_their_type_needs(dashboard: Dashboard) -> None:
    for panel in dashboard.panels:
        assert panel.title, panel
        assert panel.json["description"], panel
        names = [target["refId"] for target in panel.targets]
        assert len(names) == len(set(names)) > 0, panel
        for target in panel.targets:
            if target.get("format") == "table":
                assert target["instant"], f"{panel}: a table of a range has a row for each moment"
            else:
                assert target["legendFormat"] not in ("", "__auto"), f"{panel}: the legend would be the raw series"


def test_axes_are_bounded_where_limits_or_zeros_would_be_out_of_sight(dashboard: Dashboard) -> None:
    """Grafana draws a series of zeros on an axis up to 100, which is 10000% of a share."""
    for panel in dashboard.panels:
        custom = panel.defaults.get("custom", {})
        share = panel.type == "timeseries" and panel.defaults.get("unit") == "percentunit" and "min" in panel.defaults
        limit = custom.get("thresholdsStyle", {}).get("mode", "off") != "off"
        assert "max" in panel.defaults or "axisSoftMax" in custom or not (share or limit), panel


def test_titles_and_texts_of_stats_fit(dashboard: Dashboard) -> None:
    """Titles are cut where they do not fit; a stat shows a text in one line, however small that makes it."""
    for panel in dashboard.panels:
        room = SCREEN_PIXELS * panel.json["gridPos"]["w"] / COLUMNS - 32
        mapped = panel.defaults.get("mappings", []) if panel.type == "stat" else []
        texts = [result["text"] for each in mapped for result in each["options"].values()]
        assert len(panel.title) * TITLE_CHARACTER_PIXELS <= room, panel
        assert [text for text in texts if len(text) * CHARACTER_PIXELS > room] == [], panel


def test_queries_read_what_is_chosen_whatever_an_installation_names_its_jobs(dashboard: Dashboard) -> None:
    variables = {each["name"] for each in dashboard.variables}
    chosen = LEVEL & variables
    for whose, tree in dashboard.expressions:
        for selector in (each for each in walk(tree) if isinstance(each, promql.VectorSelector)):
            matchers = {matcher.name for matcher in selector.matchers.matchers}
            name = selector.name or str(selector)
            assert not matchers & {"job", "instance"} - variables, whose
            if re.match(r"specdec_|inference_service:", name):  # an exporter may serve several services
                wanted = chosen - ({"inference_service"} if name.startswith("specdec_exporter_") else set())
                assert wanted <= matchers, f"{whose}: {name}"


def test_the_chosen_instances_and_engines_narrow_load_tokens_and_latency() -> None:
    (service,) = [each for each in DASHBOARDS if each.name == "specdec-service"]
    choices = {each["name"] for each in service.variables} & {"instance", "engine"}
    narrowed = {
        whose
        for whose, tree in service.expressions
        for selector in walk(tree)
        if isinstance(selector, promql.VectorSelector)
        if choices and choices <= {matcher.name for matcher in selector.matchers.matchers}
    }
    rows = {panel.row for panel in service.panels if any(whose.startswith(f"{panel}, ") for whose in narrowed)}

    assert rows == {"Load and latency of chosen instances", "Replicas and events"}


def test_no_two_lines_of_a_panel_have_one_colour(dashboard: Dashboard) -> None:
    shared = {}
    for panel in dashboard.panels:
        values = [each.get("value") for rule in panel.overrides for each in rule["properties"] if each["id"] == "color"]
        colors = [value["fixedColor"] for value in values if value["mode"] == "fixed"]
        if panel.type == "timeseries" and len(colors) != len(set(colors)):
            shared[str(panel)] = sorted(colors)

    assert shared == {}


def test_whole_numbers_have_no_decimals(dashboard: Dashboard) -> None:
    """Somebody who reads "1.0 running" takes it for a mean."""
    for panel in dashboard.panels:
        columns = [{each["id"]: each.get("value") for each in rule["properties"]} for rule in panel.overrides]
        for field in (panel.defaults, *columns):
            assert field.get("unit") != "none" or field.get("decimals") == 0, panel
        counts = [target["expr"] for target in panel.targets if COUNTED.match(target["expr"])]
        assert not counts or panel.type == "table" or panel.defaults["unit"] == "none", panel


def test_ranges_hold_four_scrapes(dashboard: Dashboard) -> None:
    for whose, tree in dashboard.expressions:
        ranges = [each.range.total_seconds() for each in walk(tree) if isinstance(each, promql.MatrixSelector)]
        assert min(ranges, default=4 * SCRAPE_SECONDS) >= 4 * SCRAPE_SECONDS, whose


def test_counters_are_read_as_rates_increases_or_resets(dashboard: Dashboard) -> None:
    for whose, tree in dashboard.expressions:
        for selector in valued(tree):
            assert not re.match(r"specdec_(?!baseline_).*(_total|_bucket|_sum|_count)$", selector.name or ""), whose


def valued(expr: promql.Expr) -> Iterator[promql.VectorSelector]:
    """The instant selectors whose values count: counting series reads none."""
    match expr:
        case promql.VectorSelector():
            yield expr
        case promql.AggregateExpr() if str(expr.op) in ("count", "group"):
            return
        case promql.MatrixSelector():
            return
        case _:
            for child in children(expr):
                yield from valued(child)
