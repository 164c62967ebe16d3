#!/usr/bin/env python3
"""Render the mixin into files that load as they are, and the reference tables of docs/.

``tools/render.py`` writes them, ``tools/render.py --check`` fails where they differ. ``tools/render.py --grafana-com
DIR`` writes the dashboards as Grafana.com takes them. Deterministic.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import rjsonnet
import yaml

import apitables
import breakeventables
import enginetables
import flagtables
import metrictables
import ruletables
from release.notes import notes
from specdec_exporter import __version__
from specdec_exporter.predictor.engines.engine import ENGINES
from specdec_exporter.speculation.policy import load_policy

ROOT = Path(__file__).resolve().parent.parent

# File name in rules/rendered -> what it is for, and the _config that it is rendered with.
RULES_FILES: dict[str, tuple[str, str]] = {
    "specdec.rules.yaml": ("Prometheus 2.42 or newer, Thanos Ruler, Mimir; vmalert 1.90 or newer", "{}"),
    "specdec-vllm.rules.yaml": ("The same without the exporter, from vLLM's own metrics", "{ source: 'vllm' }"),
    "specdec.compat.rules.yaml": (
        "Rulers without keep_firing_for: Prometheus before 2.42, vmalert before 1.90",
        "{ keep_firing_for: false }",
    ),
    "specdec.prometheusrule.yaml": ("The Prometheus operator", "{}"),
}
# File name in alertmanager/rendered -> what it is for, what of it is the user's, and its field of specdecAlertmanager.
ALERTMANAGER_FILES: dict[str, tuple[str, str, str]] = {
    "specdec.fragment.yaml": (
        "To be merged into your Alertmanager configuration, list by list: Alertmanager 0.25 or newer",
        "Yours: addresses, channel, the files with secrets, the time zone of business hours, where the templates are",
        "fragment",
    ),
    "alertmanager.yaml": (
        "The fragment in a configuration that loads as it is: Alertmanager 0.25 or newer",
        "Yours, besides what is yours in the fragment: the receiver everything-else, and all other routes",
        "example",
    ),
    "specdec.alertmanagerconfig.yaml": (
        "The Prometheus operator, in the namespace of the predictors, for their alerts alone. Times are UTC",
        "Yours: addresses, channel, the Secret, the labels that your Alertmanager selects, mounting the templates",
        "object",
    ),
}
DASHBOARDS = ROOT / "dashboards"
REPOSITORY = "https://github.com/specdec-exporter/specdec-exporter"
# Links to files of this repository, up to the git reference: pages, raw files, kustomize components, the mixin.
_LINK = re.compile(
    r"(specdec-exporter/specdec-exporter/(?:blob|tree)/|githubusercontent\.com/specdec-exporter/specdec-exporter/"
    r"|specdec-exporter/specdec-exporter//\S+\?ref=|specdec-exporter/specdec-exporter/mixin@)[^/\s]+"
)
LINKING = ("docs/*.md", "deploy/**/*.md", "deploy/**/Chart.yaml")  # written by hand
GRAFANA = "10.4.0"  # the oldest that the dashboards are for
# Grafana's names of the types of panels in use.
PANEL_NAMES = {
    "stat": "Stat",
    "table": "Table",
    "timeseries": "Time series",
}
CHART = ROOT / "deploy" / "helm" / "specdec-exporter"
# How a person reads; jsonnet sorts keys.
_KEY_ORDER = (
    *("apiVersion", "kind", "metadata", "name", "interval", "record", "alert", "expr", "for", "keep_firing_for"),
    *("labels", "annotations", "summary", "description", "impact", "action", "runbook_url", "dashboard_url"),
    *("templates", "route", "inhibit_rules", "time_intervals", "receivers", "matchers", "receiver", "group_by"),
    *("group_wait", "group_interval", "repeat_interval", "active_time_intervals", "continue", "routes"),
    *("source_matchers", "target_matchers", "equal", "start_time", "end_time"),
)


class _Dumper(yaml.SafeDumper):
    """YAML as one writes it by hand: blocks for expressions, keys in reading order, list items indented."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002  # the base class's signature
        super().increase_indent(flow=flow, indentless=False)


def _text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _in_reading_order(value: Any) -> Any:
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: (_KEY_ORDER.index(key) if key in _KEY_ORDER else len(_KEY_ORDER), key))
        return {key: _in_reading_order(value[key]) for key in keys}
    if isinstance(value, list):
        return [_in_reading_order(item) for item in value]
    return value


@cache
def evaluate(config: str) -> Any:
    """Return what the mixin renders with a ``_config``. Raises ``RuntimeError`` with file and line."""
    snippet = f"""
        local mixin = (import 'mixin/mixin.libsonnet') + {{ _config+:: {config} }};
        {{
          groups: mixin.prometheusRules.groups + mixin.prometheusAlerts.groups,
          prometheusRule: mixin.specdecRules.prometheusRule,
          alertmanager: mixin.specdecAlertmanager,
          config: mixin._config,
        }}
    """
    return _in_reading_order(json.loads(rjsonnet.evaluate_snippet("tools/render.py", snippet, jpathdir=[str(ROOT)])))


def render_rules(name: str) -> str:
    """Return the text of the rendered file ``name`` of the rules."""
    purpose, config = RULES_FILES[name]
    pack = evaluate(config)
    is_object = name.endswith(".prometheusrule.yaml")
    return _headed(pack["prometheusRule"] if is_object else {"groups": pack["groups"]}, purpose)


def render_alertmanager(name: str) -> str:
    """Return the text of the rendered file ``name`` for Alertmanager."""
    *remarks, field = ALERTMANAGER_FILES[name]
    return _headed(evaluate("{}")["alertmanager"][field], *remarks)


def render_dashboards() -> dict[Path, str]:
    """Return the dashboards' JSON by file, and the ConfigMaps that carry them, one each."""
    snippet = """
        local mixin = import 'mixin/mixin.libsonnet';
        { dashboards: mixin.grafanaDashboards, metadata: mixin.specdecDashboards.configMap }
    """
    pack = json.loads(rjsonnet.evaluate_snippet("tools/render.py", snippet, jpathdir=[str(ROOT)]))
    files, config_maps = {}, []
    for name, dashboard in pack["dashboards"].items():
        files[DASHBOARDS / "rendered" / name] = _indented(dashboard)
        metadata = pack["metadata"] | {"name": f"{pack['metadata']['name']}-{dashboard['uid']}"}
        data = {name: _compact(dashboard)}
        config_maps.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    purpose = "For the sidecar of Grafana's Helm chart, which finds dashboards by their label"
    files[DASHBOARDS / "provisioning" / "configmap.yaml"] = _headed(config_maps, purpose)
    return files


def for_grafana_com(dashboard: dict[str, Any]) -> dict[str, Any]:
    """Return the dashboard as Grafana.com takes it: what it requires, and which source to ask for."""
    inside = [panel for row in dashboard["panels"] for panel in (row, *row.get("panels", ()))]
    types = sorted({panel["type"] for panel in inside} - {"row"})
    variables = [
        each | {"current": {"text": "${DS_PROMETHEUS}", "value": "${DS_PROMETHEUS}"}}
        if each["type"] == "datasource"
        else each
        for each in dashboard["templating"]["list"]
    ]
    prometheus = {"id": "prometheus", "name": "Prometheus", "version": "1.0.0"}
    return dashboard | {
        "__inputs": [
            {
                "name": "DS_PROMETHEUS",
                "label": "Prometheus",
                "description": "The Prometheus, Thanos, Mimir or VictoriaMetrics that evaluates the rules of the pack",
                "type": "datasource",
                "pluginId": "prometheus",
                "pluginName": "Prometheus",
            }
        ],
        "__requires": [
            {"type": "grafana", "id": "grafana", "name": "Grafana", "version": GRAFANA},
            {"type": "datasource", **prometheus},
            *({"type": "panel", "id": kind, "name": PANEL_NAMES[kind], "version": ""} for kind in types),
        ],
        "templating": {"list": variables},
    }


def reference(changelog: str, version: str) -> str:
    """Return the git reference that links lead to: the tag of a release, ``main`` until the changelog has its day."""
    try:
        notes(changelog, version)
    except ValueError:
        return "main"
    return f"v{version}"


@cache
def _reference() -> str:
    return reference((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), __version__)


def with_reference(text: str, ref: str) -> str:
    """Return the text with ``ref`` in all links to files of this repository."""
    return _LINK.sub(lambda link: link[1] + ref, text)


def render_links() -> dict[Path, str]:
    """Return the files with links to this repository that are written by hand, by path."""
    paths = sorted(path for pattern in LINKING for path in ROOT.glob(pattern))
    return {path: with_reference(path.read_text(encoding="utf-8"), _reference()) for path in paths}


def render_reference() -> dict[Path, str]:
    """Return the pages of docs/ with their generated tables by file."""
    pages = {
        flagtables.CONFIGURATION: flagtables.configuration_page,
        metrictables.METRICS: metrictables.metrics_page,
        apitables.API: apitables.api_page,
        enginetables.PAGE: enginetables.engines_page,
        breakeventables.BREAK_EVEN: breakeventables.evidence_page,
    }
    return {ROOT / path: fill((ROOT / path).read_text(encoding="utf-8")) for path, fill in pages.items()}


def render_policy() -> dict[Path, str]:
    """Return the mixin's configuration with the numbers of the exporter's policy, and the address of the runbooks."""
    policy = load_policy()
    assumed = policy.assumed
    general = [row for row in assumed.rows if not row.methods]
    values: dict[str, Any] = {
        "acceptance": {
            "flag": policy.acceptance_ratio_flag,
            "broken": policy.acceptance_ratio_broken,
            "broken_tokens": policy.accepted_tokens_broken,
            "outlier": policy.outlier_gap,
        },
        "assumed": {
            "light": [[row.k_max, row.light.min] for row in general],
            "heavy": general[0].heavy.min,
            "light_requests": assumed.light_requests,
            "heavy_requests": assumed.heavy_requests,
        },
        "min_requests": policy.latency.min_requests,
        "speedup": {"wanted": policy.latency.speedup_min, "harmful": policy.latency.speedup_harmful},
        "tail": {
            "held": policy.latency.tail_limit_share,
            "growth": policy.latency.tail_growth,
            "ticket": policy.latency.tail_shift_min,
            "page": policy.latency.tail_shift_critical,
        },
        "counting_at_end:": "|".join(code for code, engine in ENGINES.items() if engine.counts_at_end),  # hidden
        "runbook_url_prefix": f"{REPOSITORY}/blob/{_reference()}/rules/runbooks/",
    }
    lines = "".join(f"    {name}: {_jsonnet(value)},\n" for name, value in values.items())
    path = ROOT / "mixin" / "config.libsonnet"
    before, _, rest = path.read_text(encoding="utf-8").partition("    // <policy>\n")
    _, _, after = rest.partition("    // </policy>\n")
    return {path: f"{before}    // <policy>\n{lines}    // </policy>\n{after}"}


def _jsonnet(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name}: {_jsonnet(each)}" for name, each in value.items()) + " }"
    return json.dumps(value).replace('"', "'")


def render_chart() -> dict[Path, str]:
    """Return the chart's ``files/`` by path: the pack as it is rendered. Helm reads nothing outside of a chart."""
    files = CHART / "files"
    rules = {"exporter": "specdec.rules.yaml", "vllm": "specdec-vllm.rules.yaml"}
    rendered = {files / f"rules-{source}.yaml": render_rules(name) for source, name in rules.items()}
    for source in rules:
        snippet = f"((import 'mixin/mixin.libsonnet') + {{ _config+:: {{ source: '{source}' }} }}).grafanaDashboards"
        dashboards = json.loads(rjsonnet.evaluate_snippet("tools/render.py", snippet, jpathdir=[str(ROOT)]))
        for name, dashboard in dashboards.items():
            rendered[files / f"dashboards-{source}" / name] = _compact(dashboard)
    for name in ("podmonitor.yaml", "podmonitor-llm.yaml"):
        rendered[files / name] = (ROOT / "deploy/kubernetes/monitoring" / name).read_text(encoding="utf-8")
    return rendered


def _compact(dashboard: Any) -> str:
    """A dashboard as a ConfigMap holds it, without white space: ``kubectl apply`` refuses objects beyond 256 KiB."""
    return json.dumps(dashboard, separators=(",", ":"), ensure_ascii=False) + "\n"


def _indented(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _yaml(document: Any) -> str:
    return yaml.dump(_in_reading_order(document), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)


def _headed(document: Any, *remarks: str) -> str:
    """The document as YAML, or several if it is a list, under what they are for."""
    header = "".join(f"# {remark}.\n" for remark in (*remarks, "Generated by make render from mixin/; do not edit"))
    documents = document if isinstance(document, list) else [document]
    return header + "---\n".join(_yaml(each) for each in documents)


def main() -> int:
    """Write or check the rendered files; 1 when a check fails."""
    parser = argparse.ArgumentParser(description="Render the mixin.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument(
        "--grafana-com", type=Path, metavar="DIR", help="write the dashboards for Grafana.com there instead"
    )
    arguments = parser.parse_args()
    check, stale = arguments.check, []
    if arguments.grafana_com:
        arguments.grafana_com.mkdir(parents=True, exist_ok=True)
        for path in sorted((DASHBOARDS / "rendered").glob("*.json")):
            made = for_grafana_com(json.loads(path.read_text(encoding="utf-8")))
            (arguments.grafana_com / path.name).write_text(_indented(made), encoding="utf-8")
        return 0
    for path, text in (render_policy() | render_links()).items():  # first: what follows is rendered from it
        if check and path.read_text(encoding="utf-8") != text:
            stale.append(str(path.relative_to(ROOT)))
        elif not check:
            path.write_text(text, encoding="utf-8")
    files = {ROOT / "rules" / "rendered" / name: render_rules(name) for name in RULES_FILES}
    files |= {ROOT / "alertmanager" / "rendered" / name: render_alertmanager(name) for name in ALERTMANAGER_FILES}
    files |= render_dashboards() | render_reference() | render_chart()
    pack = evaluate("{}")
    files |= ruletables.documents(ROOT, pack["config"], pack["groups"])
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if check and (not path.exists() or path.read_text(encoding="utf-8") != text):
            stale.append(str(path.relative_to(ROOT)))
        elif not check:
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.stderr.write(f"not what their sources say: {', '.join(stale)}; run make render\n")
    return bool(stale)


if __name__ == "__main__":
    sys.exit(main())
