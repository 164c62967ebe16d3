"""Where panels stand, and where links lead."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from dashboards.conftest import DASHBOARDS
from dashboards.grafana import CHARACTER_PIXELS, COLUMNS, FIRST_SCREEN_UNITS, SCREEN_PIXELS, Dashboard, Json
from support.fieldtools import ROOT
from unit.test_links import anchors

RUNBOOKS = {path.stem for path in (ROOT / "rules" / "runbooks").glob("*.md")}
MAX_QUERIES_ON_OPEN = 33
MAX_PANELS = 41  # of all dashboards
CELL_PADDING_PIXELS = 16
NAME_CHARACTER_PIXELS = 8  # of a name in camel case, 14 pixels high
ALERTS = "Firing alerts: since when, and what to do first"
ANSWER = ("Verdict", "What to do", "Replicas with another verdict", ALERTS)
LOAD = (
    "Requests finished per second",
    "Aborted or failed, share of requests",
    "Requests running and waiting",
    "KV cache",
)
TOKENS_AND_LATENCY = ("Tokens per second", "Time per output token", "Time to first token", "End-to-end latency")
OF_A_ROW = re.compile(r"\$\{__[^}]*\}")


def links(value: object) -> Iterator[str]:
    """Every URL in the JSON."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "url" and isinstance(inner, str):
                yield inner
            else:
                yield from links(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from links(inner)


def test_panels_have_a_place_and_an_id_of_their_own(dashboard: Dashboard) -> None:
    cells: dict[tuple[int, int], str] = {}
    for panel in dashboard.unfolded:
        grid = panel["gridPos"]
        assert 0 <= grid["x"] < grid["x"] + grid["w"] <= COLUMNS, panel["title"]
        assert grid["h"] > 0, panel["title"]
        for cell in itertools.product(range(grid["x"], grid["x"] + grid["w"]), range(grid["y"], grid["y"] + grid["h"])):
            assert cell not in cells, f"{panel['title']} lies on {cells[cell]}"
            cells[cell] = panel["title"]
    ids = [panel["id"] for panel in dashboard.unfolded]
    assert len(ids) == len(set(ids))
    tops = [panel["gridPos"]["y"] for panel in dashboard.unfolded]
    assert tops == sorted(tops), "a panel above its row is hidden when that is folded"


def test_a_dashboard_opens_quickly(dashboard: Dashboard) -> None:
    folded = [row["collapsed"] for row in dashboard.json["panels"] if row["type"] == "row"]

    assert folded == sorted(folded), "an open row below a folded one is out of sight"
    assert not folded[0]
    assert dashboard.queries_on_open <= MAX_QUERIES_ON_OPEN


def test_nobody_has_to_look_at_more_panels_than_they_can_know() -> None:
    assert 30 < sum(len(dashboard.panels) for dashboard in DASHBOARDS) <= MAX_PANELS


def test_the_first_screen_of_a_service_answers_and_shows_load_and_errors_before_tokens_and_latency() -> None:
    """In an incident nobody unfolds rows: only what compares drafts with each other is folded."""
    (service,) = [dashboard for dashboard in DASHBOARDS if dashboard.name == "specdec-service"]
    open_titles = [each["title"] for each in service.json["panels"] if each["type"] != "row"]
    first_screen = [
        each["title"]
        for each in service.json["panels"]
        if each["type"] != "row" and each["gridPos"]["y"] + each["gridPos"]["h"] <= FIRST_SCREEN_UNITS
    ]

    assert first_screen == [*ANSWER, *LOAD]
    assert open_titles[: len(first_screen) + len(TOKENS_AND_LATENCY)] == [*first_screen, *TOKENS_AND_LATENCY]
    assert {panel.row for panel in service.panels if panel.title not in open_titles} == {"Which drafts pay?"}


def test_what_to_do_first_has_room_in_its_cells() -> None:
    """Grafana makes no room for texts that a mapping gives: a row has two lines."""
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            overrides = {
                each["matcher"]["options"]: {one["id"]: one.get("value") for one in each["properties"]}
                for each in panel.overrides
            }
            wide = SCREEN_PIXELS * panel.json["gridPos"]["w"] / COLUMNS
            given = sum(override.get("custom.width", 0) for override in overrides.values())
            for column, override in overrides.items():
                if not override.get("custom.cellOptions", {}).get("wrapText"):
                    continue
                line = (override.get("custom.width") or wide - given) - CELL_PADDING_PIXELS
                for text in mapped(override["mappings"]):
                    assert len(text) * CHARACTER_PIXELS <= 2 * line, f"{panel}, {column}: {text}"


def test_names_of_alerts_fit_into_their_column() -> None:
    for dashboard in DASHBOARDS:
        for panel in (panel for panel in dashboard.panels if panel.title == ALERTS):
            (column,) = [rule for rule in panel.overrides if rule["matcher"]["options"] == "Alert"]
            (width,) = [each["value"] for each in column["properties"] if each["id"] == "custom.width"]
            alerts = [name for name in RUNBOOKS if name.startswith("SpecDecode")]

            assert [name for name in alerts if len(name) * NAME_CHARACTER_PIXELS + CELL_PADDING_PIXELS > width] == []


def mapped(mappings: list[Json]) -> Iterator[str]:
    for each in mappings:
        options = each["options"]
        results = [options["result"]] if each["type"] == "regex" else options.values()
        yield from (result["text"] for result in results)


def test_links_lead_to_dashboards_and_variables_that_exist(dashboard: Dashboard) -> None:
    variables = {each.json["uid"]: {variable["name"] for variable in each.variables} for each in DASHBOARDS}
    own = {variable["name"] for variable in dashboard.variables}
    found = [url for url in links(dashboard.json) if url.startswith("/d/")]

    for url in found:
        match = re.match(r"/d/([\w-]+)(?:/[\w-]*)?(?:\?(.*))?$", url)
        assert match, url
        assert match[1] in variables, url
        query = match[2] or ""
        given = set(re.findall(r"var-(\w+)=", query)) | set(re.findall(r"\$\{(?!__)(\w+):queryparam\}", query))
        assert given <= variables[match[1]], url
        assert set(re.findall(r"\$\{(?!__)(\w+)", query)) <= own, url


def test_links_between_dashboards_keep_time_and_place(dashboard: Dashboard) -> None:
    others = {each.json["uid"] for each in DASHBOARDS} - {dashboard.json["uid"]}
    kept = [link for link in dashboard.json["links"] if link["keepTime"] and "/d/" in (link.get("url") or "")]

    assert {re.sub(r".*/d/([\w-]+).*", r"\1", link["url"]) for link in kept} == others
    assert all("${datasource:queryparam}" in link["url"] for link in kept)
    for url in links([panel.json for panel in dashboard.panels]):
        assert not url.startswith("/d/") or "${__url_time_range}" in url, url


def test_a_menu_has_the_dashboards_that_vllm_ships(dashboard: Dashboard) -> None:
    """Its own boards bear the tag; ours bear it too, so that its menu has them."""
    menus = [link for link in dashboard.json["links"] if link["type"] == "dashboards"]

    assert [(menu["tags"], menu["keepTime"]) for menu in menus] == [(["vllm"], True)]
    assert "vllm" in dashboard.json["tags"]


def test_links_to_runbooks_lead_somewhere(dashboard: Dashboard) -> None:
    for url in links(dashboard.json):
        match = re.search(r"/runbooks/([^/#]+?)\.md(?:#([\w-]+))?$", url)
        if "/runbooks/" not in url or OF_A_ROW.search(url):
            continue
        assert match, url
        assert match[1] in RUNBOOKS, url
        if match[2]:
            assert match[2] in anchors(ROOT / "rules" / "runbooks" / f"{match[1]}.md"), url


def test_every_panel_links_to_a_runbook(dashboard: Dashboard) -> None:
    without = [
        panel.title
        for panel in dashboard.panels
        if panel.type != "text" and not any("/runbooks/" in link["url"] for link in panel.json.get("links", []))
    ]

    assert without == []
