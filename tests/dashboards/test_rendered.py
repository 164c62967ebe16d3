"""The committed dashboards are the same in every form (tests/rules/test_rendered.py: and what the sources say)."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import rjsonnet

import render
from dashboards.grafana import Dashboard
from support import yamltext
from support.processes import said
from support.promtool import REPOSITORY

DASHBOARDS = REPOSITORY / "dashboards"
RENDERED = sorted((DASHBOARDS / "rendered").glob("*.json"))
APPLY_LIMIT = 256 * 1024  # kubectl apply keeps the object in an annotation of it
LONGEST_QUERY = 800  # characters
ROOM = 0.95  # for the annotation's name, labels of the user's, and a panel more


def config_maps() -> list[dict[str, Any]]:
    return yamltext.load_all((DASHBOARDS / "provisioning" / "configmap.yaml").read_text(encoding="utf-8"))


def evaluated(config: str) -> dict[str, Any]:
    snippet = f"((import 'mixin/mixin.libsonnet') + {{ _config+:: {config} }}).grafanaDashboards"
    found: dict[str, Any] = json.loads(rjsonnet.evaluate_snippet("test", snippet, jpathdir=[str(REPOSITORY)]))
    return found


def test_the_config_maps_carry_the_same_dashboards() -> None:
    carried = {name: json.loads(text) for each in config_maps() for name, text in each["data"].items()}

    assert carried == {path.name: json.loads(path.read_text(encoding="utf-8")) for path in RENDERED}


def test_kubectl_can_apply_the_config_maps() -> None:
    """It keeps the object in an annotation as Go writes JSON, and the API server counts the annotations' bytes."""
    for each in config_maps():
        kept = json.dumps(each, separators=(",", ":"), ensure_ascii=False)
        for character in "<>&":
            kept = kept.replace(character, f"\\u{ord(character):04x}")
        assert len(kept.encode()) < ROOM * APPLY_LIMIT, each["metadata"]["name"]


def test_grafana_com_is_told_what_the_dashboards_require_and_asks_for_the_source(tmp_path: Path) -> None:
    said(sys.executable, REPOSITORY / "tools" / "render.py", "--grafana-com", tmp_path)
    for path in RENDERED:
        made = json.loads((tmp_path / path.name).read_text(encoding="utf-8"))
        asked, required = made.pop("__inputs"), made.pop("__requires")
        kinds = {panel.type for panel in Dashboard(path.stem, made).panels}
        assert {each["id"] for each in required} == {"grafana", "prometheus"} | kinds
        assert [(each["type"], each["pluginId"]) for each in asked] == [("datasource", "prometheus")]
        (source,) = [each for each in made["templating"]["list"] if each["type"] == "datasource"]
        assert source["current"]["value"] == f"${{{asked[0]['name']}}}"
        assert "${DS_" not in json.dumps(made).replace(f"${{{asked[0]['name']}}}", ""), "nobody is asked for it"
        source["current"] = {}
        assert made == json.loads(path.read_text(encoding="utf-8"))


def test_the_page_says_for_which_grafana_they_are_written_and_by_which_they_are_drawn() -> None:
    packages = json.loads((REPOSITORY / "lab/panels/components/package.json").read_text(encoding="utf-8"))
    page = (DASHBOARDS / "README.md").read_text(encoding="utf-8")

    assert f"Grafana {render.GRAFANA.removesuffix('.0')} or newer" in page
    assert f"by the components of Grafana {packages['devDependencies']['@grafana/ui']}" in page
    assert "tools/render.py --grafana-com" in (REPOSITORY / "docs" / "releasing.md").read_text(encoding="utf-8")


def test_no_query_is_too_long_to_read() -> None:
    queries = {
        f"{panel}, {target['refId']}": len(target["expr"])
        for path in RENDERED
        for panel in Dashboard(path.stem, json.loads(path.read_text(encoding="utf-8"))).panels
        for target in panel.targets
    }

    assert {whose: length for whose, length in queries.items() if length > LONGEST_QUERY} == {}


def test_without_the_exporter_no_panel_asks_for_its_series() -> None:
    asked = re.compile(r"(?<![:\w])specdec_\w+")
    for name, dashboard in evaluated("{ source: 'vllm' }").items():
        queries = [target["expr"] for panel in Dashboard(name, dashboard).panels for target in panel.targets]
        queries += [each["target"]["expr"] for each in dashboard["annotations"]["list"] if "target" in each]
        queries += [
            each["query"] if isinstance(each["query"], str) else each["query"]["query"]
            for each in dashboard["templating"]["list"]
        ]
        assert {found for query in queries for found in asked.findall(query)} == set(), name


def test_a_selector_of_the_config_is_in_every_query_of_raw_series() -> None:
    raw = re.compile(r"(?<![:\w])specdec_\w+(\{[^}]*\})")
    found = 0
    for name, dashboard in evaluated("""{ selector: 'job="predictors"' }""").items():
        for panel in Dashboard(name, dashboard).panels:
            for target in panel.targets:
                for matchers in raw.findall(target["expr"]):
                    found += 1
                    assert 'job="predictors"' in matchers, target["expr"]

    assert found > 40


def test_what_a_signal_is_overridden_to_is_what_panels_show() -> None:
    signals = "{ acceptance+: { record: 'mine:acceptance', help: 'My definition.' } }"
    snippet = f"((import 'mixin/mixin.libsonnet') + {{ _signals+:: {signals} }}).grafanaDashboards"
    made = json.loads(rjsonnet.evaluate_snippet("test", snippet, jpathdir=[str(REPOSITORY)]))
    (panel,) = [
        panel for panel in Dashboard("specdec-ab", made["specdec-ab.json"]).panels if panel.title == "Acceptance rate"
    ]

    assert panel.targets[0]["expr"].startswith("mine:acceptance{")
    assert "- My definition." in panel.json["description"]
    assert "inference_service:specdec_acceptance:ratio30m" not in json.dumps(made)


def test_links_need_no_address_of_anybody() -> None:
    """What is rendered is used as it is: an invented host would be a dead link in everybody's alerts."""
    files = [*RENDERED, *(REPOSITORY / "rules" / "rendered").glob("*.yaml")]
    hosts = {host for path in files for host in re.findall(r"https?://([^/\s\"']+)", path.read_text(encoding="utf-8"))}

    assert len(files) > 7
    assert hosts == {"github.com"}
