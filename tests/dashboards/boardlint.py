"""Checks of dashboards that Grafana's dashboard-linter does not make, or makes for some types of panels only.

Expressions are parsed, never matched as text. A check yields findings in words; none means content.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import promql_parser as promql

from dashboards.grafana import (
    COLUMNS,
    DATASOURCE_INTERVAL_SECONDS,
    SCREEN_PIXELS,
    Dashboard,
    Json,
    Panel,
    Variable,
    interpolate,
    seconds,
)
from promqllabels import children, walk

SCHEMA = 39  # Grafana 10.4's: older releases refuse newer ones, newer ones migrate
TITLE_CHARACTER_PIXELS = 7.2  # of Grafana's 14 pixels
CHARACTER_PIXELS = 6  # of letters 11 pixels high, the smallest that can be read
SCRAPE_SECONDS = 60  # the slowest that the pack is for
MACROS = {
    "__rate_interval": "4m",
    "__interval": "1m",
    "__range": "6h",
    "__range_s": "21600",
    "__from": "0",
    "__to": "1",
}
LEVEL = ("cluster", "namespace", "inference_service")
# Grafana's names of the units that the dashboards use; a misspelt one shows as text behind every number.
UNITS = {"percentunit", "s", "short", "none", "reqps", "bytes", "dateTimeFromNow", "dateTimeAsIso", "string"}
VISUAL = {"stat", "timeseries", "table", "barchart", "heatmap", "state-timeline"}


def queries(dashboard: Dashboard) -> Iterator[tuple[str, Json]]:
    """Every query of the dashboard, and whose it is."""
    for panel in dashboard.panels:
        for target in panel.json.get("targets", []):
            yield f"{panel}, {target.get('refId')}", target
    for annotation in dashboard.annotations:
        yield f"{dashboard.name}: annotation {annotation['name']}", annotation.get("target") or annotation


def parsed(dashboard: Dashboard, expression: str) -> promql.Expr:
    """The expression with all variables put in."""
    variables = {each["name"]: Variable(each, "value", ("value",)) for each in dashboard.variables}
    return promql.parse(interpolate(expression, variables, MACROS))


def frame(dashboard: Dashboard) -> Iterator[str]:
    """What a dashboard says of itself."""
    given = dashboard.json
    if given.get("editable") is not False:
        yield "editable: what is changed in Grafana is lost with the next release of the pack"
    if given["schemaVersion"] > SCHEMA:
        yield f"schemaVersion {given['schemaVersion']}: Grafana 10.4 knows {SCHEMA}"
    if given.get("id") is not None:
        yield "id: a number of one Grafana's database"
    if "specdec" not in given.get("tags", []):
        yield "tags: 'specdec' is how the dashboards are found"
    for field in ("uid", "title", "description", "refresh", "time"):
        if not given.get(field):
            yield f"{field}: nothing"


def variables(dashboard: Dashboard) -> Iterator[str]:
    """One data source to choose; labels on all; chained; fresh after a change of the time range; none unused."""
    sources = [each for each in dashboard.variables if each["type"] == "datasource"]
    if [(each["name"], each.get("label"), each["query"]) for each in sources] != [
        ("datasource", "Data source", "prometheus")
    ]:
        yield "expected one variable 'datasource', labelled 'Data source', for Prometheus"
    before: set[str] = set()
    text = str([panel.json for panel in dashboard.panels]) + str(dashboard.annotations) + str(dashboard.variables)
    for each in dashboard.variables:
        name = each["name"]
        if not each.get("label"):
            yield f"${name}: no label"
        if not re.search(rf"\$\{{?{name}\b", text):
            yield f"${name}: nothing uses it"
        if each["type"] == "query":
            yield from _query_variable(each, before)
        before.add(name)


def _query_variable(variable: Json, before: set[str]) -> Iterator[str]:
    name, query = variable["name"], variable["query"]
    text = query if isinstance(query, str) else query["query"]
    if variable.get("refresh") != 2:
        yield f"${name}: refresh {variable.get('refresh')}: services of another time range are not offered"
    if variable.get("datasource", {}).get("uid") != "${datasource}":
        yield f"${name}: another data source than the chosen one"
    if variable.get("multi") and variable.get("allValue") not in (".*", ".+"):
        yield f"${name}: without allValue a long list makes a query that is too long"
    if name in ("cluster", "namespace") and variable.get("allValue") != ".*":
        yield f"${name}: All must match series without the label, too"
    for used in re.findall(r"\$\{?(\w+)", text):
        if used not in before:
            yield f"${name}: it needs ${used}, which comes later or not at all"
    for level in ("cluster", "namespace"):
        if level in before and f"${level}" not in text:
            yield f"${name}: not narrowed by ${level}"


def panels(dashboard: Dashboard) -> Iterator[str]:
    """Panels say what they are, in which unit, and why they are empty."""
    for panel in dashboard.panels:
        if not panel.title:
            yield f"{panel}: no title"
        if not panel.json.get("description"):
            yield f"{panel}: no description"
        if panel.type == "text":
            continue
        if panel.type not in VISUAL:
            yield f"{panel}: type {panel.type!r} is not checked here"
        if panel.json.get("datasource") != {"type": "prometheus", "uid": "${datasource}"}:
            yield f"{panel}: another data source than the chosen one"
        if not panel.targets:
            yield f"{panel}: no query"
        if not panel.defaults.get("noValue"):
            yield f"{panel}: nothing says why there may be no data"
        yield from _units(panel)
        yield from _axes(panel)
        yield from _texts(panel)
        yield from _targets(panel)


def _units(panel: Panel) -> Iterator[str]:
    given = [panel.defaults.get("unit")]
    given += [each["value"] for over in panel.overrides for each in over["properties"] if each["id"] == "unit"]
    if given == [None] and not panel.defaults.get("mappings"):
        yield f"{panel}: no unit"
    for unit in given:
        if unit is not None and unit not in UNITS and not unit.startswith("suffix:"):
            yield f"{panel}: Grafana has no unit {unit!r}, or the list of those in use here lacks it"
        if unit is not None and unit.startswith("suffix: "):
            yield f"{panel}: Grafana puts a space before a suffix, and {unit!r} has another"


def _axes(panel: Panel) -> Iterator[str]:
    """Grafana draws a series of zeros on an axis up to 100, which is 10000% of a share."""
    custom = panel.defaults.get("custom", {})
    bounded = "max" in panel.defaults or "axisSoftMax" in custom
    share = panel.type == "timeseries" and panel.defaults.get("unit") == "percentunit"
    if share and "min" in panel.defaults and not bounded:
        yield f"{panel}: nothing bounds the axis while all values are 0"
    if custom.get("thresholdsStyle", {}).get("mode", "off") != "off" and not bounded:
        yield f"{panel}: the limit may be out of sight"


def _texts(panel: Panel) -> Iterator[str]:
    """Titles are cut where they do not fit; a stat shows a text in one line, however small that makes it."""
    room = SCREEN_PIXELS * panel.json["gridPos"]["w"] / COLUMNS - 32
    if len(panel.title) * TITLE_CHARACTER_PIXELS > room:
        yield f"{panel}: no room for the title"
    if panel.type != "stat":
        return
    for each in panel.defaults.get("mappings", []):
        for result in each["options"].values() if each["type"] == "value" else ():
            if len(result.get("text", "")) * CHARACTER_PIXELS > room:
                yield f"{panel}: no room for {result['text']!r}"


def _targets(panel: Panel) -> Iterator[str]:
    refs = [target.get("refId") for target in panel.targets]
    if len(refs) != len(set(refs)):
        yield f"{panel}: two queries are called the same"
    for target in panel.targets:
        source = target.get("datasource")
        if source is not None and source != panel.json["datasource"]:
            yield f"{panel}, {target['refId']}: another data source than the panel's"
        if target.get("format") != "table" and target.get("legendFormat", "__auto") in ("", "__auto"):
            yield f"{panel}, {target['refId']}: the legend would be the raw series"
        if target.get("format") == "table" and not target.get("instant"):
            yield f"{panel}, {target['refId']}: a table of a range has a row for each moment"


def expressions(dashboard: Dashboard) -> Iterator[str]:
    """Every query is PromQL, reads what the variables select, and takes ranges that hold enough scrapes."""
    for whose, target in queries(dashboard):
        try:
            tree = parsed(dashboard, target["expr"])
        except (ValueError, KeyError) as error:
            yield f"{whose}: {error}"
            continue
        chosen = {each["name"] for each in dashboard.variables}
        for each in walk(tree):
            if isinstance(each, promql.VectorSelector):
                yield from (f"{whose}: {finding}" for finding in _selector(each, chosen))
            if isinstance(each, promql.MatrixSelector) and each.range.total_seconds() < 4 * SCRAPE_SECONDS:
                yield f"{whose}: {each.range} does not hold four scrapes"
        for window in re.findall(r"\[\$(\w+)", target["expr"]):
            if window == "__interval":
                yield f"{whose}: $__interval may be shorter than a scrape: $__rate_interval"


def _selector(selector: promql.VectorSelector, chosen: set[str]) -> Iterator[str]:
    matchers = {matcher.name for matcher in selector.matchers.matchers}
    name = selector.name or str(selector)
    for label in ("job", "instance"):
        if label in matchers:
            yield f"{name}: installations name {label}s as they like"
    if re.match(r"specdec_|inference_service:", name):
        of_the_process = name.startswith("specdec_exporter_")  # it may serve several services
        wanted = {label for label in LEVEL if label in chosen} - ({"inference_service"} if of_the_process else set())
        if missing := wanted - matchers:
            yield f"{name}: not narrowed by {', '.join(sorted(missing))}"


def counters(dashboard: Dashboard) -> Iterator[str]:
    """Counters are read as rates, increases or resets, never as they are; counting series reads no values."""
    for whose, target in queries(dashboard):
        for selector in _valued(parsed(dashboard, target["expr"])):
            if re.match(r"specdec_(?!baseline_).*(_total|_bucket|_sum|_count)$", selector.name or ""):
                yield f"{whose}: {selector.name} is a total since the start"


def _valued(expr: promql.Expr) -> Iterator[promql.VectorSelector]:
    """The instant selectors whose values count."""
    match expr:
        case promql.VectorSelector():
            yield expr
        case promql.AggregateExpr() if str(expr.op) in ("count", "group"):
            return
        case promql.MatrixSelector():
            return
        case _:
            for child in children(expr):
                yield from _valued(child)


def steps(dashboard: Dashboard) -> Iterator[str]:
    """With $__rate_interval a panel says how far apart scrapes are: Grafana guesses 15 s, and takes four of them."""
    for panel in dashboard.panels:
        if any("$__rate_interval" in target["expr"] for target in panel.targets):
            interval = panel.json.get("interval")
            if (seconds(interval) if interval else DATASOURCE_INTERVAL_SECONDS) < SCRAPE_SECONDS:
                yield f"{panel}: interval {interval!r} is shorter than a scrape"


CHECKS: Mapping[str, Callable[[Dashboard], Iterator[str]]] = {
    "frame": frame,
    "variables": variables,
    "panels": panels,
    "expressions": expressions,
    "counters": counters,
    "steps": steps,
}
