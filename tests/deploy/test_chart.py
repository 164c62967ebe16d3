"""The chart installs what the mixin renders, takes every value that it documents, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.chart import CHART, KUBERNETES_VERSION, Object, helm, named, nested, refused, rendered, text_of
from deploy.manifests import SERVE_VARIABLES
from specdec_exporter import __version__
from support import crd
from support.fieldtools import ROOT
from support.processes import exporter_ran

pytestmark = pytest.mark.nightly

VALUES = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
IMAGE = "registry.example.com/specdec-exporter:0.1.0"
SERVERS = [{"name": "chat", "url": "http://vllm.prod:8000"}, {"name": "code", "url": "https://code.prod"}]
SERVED = {"exporter.enabled": True, "exporter.image": IMAGE, "exporter.predictors": SERVERS}
ALL_ON = {"networkPolicy.enabled": True, "networkPolicy.namespaces": ["prod"], **SERVED}
PEERS = [{"ipBlock": {"cidr": "10.0.0.0/8"}}]
ENDPOINT = "spec.podMetricsEndpoints.0"
# A value other than the default, and the object and the place where it has to arrive.
CASES: dict[str, tuple[Any, str, str]] = {
    "labels": ({"team": "ml"}, "NetworkPolicy", "metadata.labels"),
    "operatorLabels": ({"prometheus": "ours"}, "PrometheusRule", "metadata.labels"),
    "exporter.image": ("mine/exporter:1", "Deployment", "spec.template.spec.containers.0.image"),
    "exporter.namespace": ("prod", "Deployment", "metadata.namespace"),
    "rules.alertLabels": ({"tier": "1"}, "PrometheusRule", "spec.groups.-1.rules.0.labels"),
    "dashboards.labels": ({"grafana_dashboard": "yes"}, "ConfigMap/ab", "metadata.labels"),
    "dashboards.annotations": ({"grafana_folder": "ML"}, "ConfigMap/ab", "metadata.annotations"),
    "podMonitors.interval": ("15s", "PodMonitor/llm", f"{ENDPOINT}.interval"),
    "podMonitors.scrapeTimeout": ("5s", "PodMonitor/llm", f"{ENDPOINT}.scrapeTimeout"),
    "podMonitors.namespaces": (["prod"], "PodMonitor/llm", "spec.namespaceSelector.matchNames"),
    "networkPolicy.namespaces": (["test"], "NetworkPolicy", "metadata.namespace"),
    "networkPolicy.from": (PEERS, "NetworkPolicy", "spec.ingress.0.from"),
}
# Objects that each switch brings, and the part of the chart that they belong to.
SWITCHES = {
    "exporter.enabled": {("ConfigMap", "exporter"), ("Deployment", "exporter"), ("PodMonitor", "exporter")},
    "rules.enabled": {("PrometheusRule", "rules")},
    "dashboards.enabled": {("ConfigMap", "dashboards")},
    "podMonitors.enabled": {("PodMonitor", "metrics")},
    "networkPolicy.enabled": {("NetworkPolicy", "metrics")},
}


def paths(values: Object, above: str = "") -> set[str]:
    """Every value of values.yaml that a person sets; a map without ``enabled`` is one value."""
    found: set[str] = set()
    for key, value in values.items():
        inner = isinstance(value, dict) and "enabled" in value
        found |= paths(value, f"{key}.") if inner else {above + key}
    return found


@pytest.mark.parametrize(("source", "file"), [("exporter", "specdec.rules.yaml"), ("vllm", "specdec-vllm.rules.yaml")])
def test_the_rules_are_the_rendered_ones_and_the_operator_allows_them(source: str, file: str) -> None:
    rules = yaml.safe_load((ROOT / "rules/rendered" / file).read_text(encoding="utf-8"))

    found = named(rendered({"source": source}), "PrometheusRule")

    assert found["spec"] == rules
    assert crd.refused(found) == []


def test_the_dashboards_are_the_rendered_ones() -> None:
    maps = [one["data"] for one in rendered({}) if one["kind"] == "ConfigMap"]

    assert {name: json.loads(text) for data in maps for name, text in data.items()} == {
        file.name: json.loads(file.read_text(encoding="utf-8")) for file in (ROOT / "dashboards/rendered").iterdir()
    }


@pytest.mark.parametrize("source", ["exporter", "vllm"])
def test_without_an_exporter_of_its_own_there_is_no_placeholder_to_forget(source: str) -> None:
    """On KServe the exporter is a sidecar of the predictors."""
    text = text_of(nested(ALL_ON | {"source": source, "exporter.enabled": False}))

    assert re.findall(r"(?m)^ *-? *image:.*", text) == []
    assert "example.com" not in text


def test_without_the_exporter_rules_and_dashboards_read_vllms_own_metrics() -> None:
    chart = rendered({"source": "vllm"})

    for one in chart:
        if one["kind"] == "ConfigMap":
            assert "vllm" in str(one["data"])
            assert "specdec_generation_tokens_total" not in str(one["data"])


def test_the_podmonitors_are_those_of_the_kustomization_and_the_operator_allows_them() -> None:
    chart = rendered({})

    for name, file in {"": "podmonitor.yaml", "llm": "podmonitor-llm.yaml"}.items():
        expected = yaml.safe_load((ROOT / "deploy/kubernetes/monitoring" / file).read_text(encoding="utf-8"))["spec"]
        (found,) = (
            one
            for one in chart
            if one["kind"] == "PodMonitor" and one["metadata"]["name"] == f"pack-specdec-exporter{name and '-llm'}"
        )
        assert found["spec"] == expected
        assert crd.refused(found) == []


def test_the_exporter_takes_its_settings_and_reads_every_server(tmp_path: Path) -> None:
    (config,) = (one["data"] for one in rendered(nested(SERVED)) if "specdec.yaml" in one.get("data", {}))
    file = tmp_path / "specdec.yaml"
    file.write_text(config["specdec.yaml"], encoding="utf-8")
    container = named(rendered(nested(SERVED)), "Deployment")["spec"]["template"]["spec"]["containers"][0]

    answer = exporter_ran("serve", "--config.check", SPECDEC_CONFIG_FILE=str(file))
    assert answer.returncode == 0, answer.stderr
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["predictors"] == SERVERS
    assert {one["name"] for one in container["env"]} <= SERVE_VARIABLES
    assert container["env"][0]["value"] == container["volumeMounts"][0]["mountPath"] + "/specdec.yaml"


def test_prometheus_finds_the_exporter_and_keeps_the_names_of_the_servers() -> None:
    chart = rendered(nested(SERVED | {"exporter.namespace": "prod"}))
    deployment, monitor = named(chart, "Deployment"), named(chart, "PodMonitor", "servers")
    template = deployment["spec"]["template"]
    sidecar = yaml.safe_load((ROOT / "deploy/kubernetes/sidecar/container/container.yaml").read_text(encoding="utf-8"))
    (like,), (container,) = sidecar["template"]["spec"]["containers"], template["spec"]["containers"]

    assert crd.refused(monitor) == []
    assert (
        monitor["spec"]["namespaceSelector"]
        == {"matchNames": [deployment["metadata"]["namespace"]]}
        == {"matchNames": ["prod"]}
    )
    assert monitor["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == container["ports"][0]["name"]
    assert endpoint["honorLabels"] is True
    for part in ("ports", "livenessProbe", "resources", "securityContext"):
        assert container[part] == like[part]


def test_every_value_has_a_test_and_a_schema() -> None:
    properties = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))["properties"]
    described = {
        f"{name}.{inner}" if "properties" in one else name
        for name, one in properties.items()
        for inner in one.get("properties", [""])
    }

    assert paths(VALUES) == {*CASES, *SWITCHES, "exporter.predictors", "source"} == described - {"global"}


@pytest.mark.parametrize("path", CASES)
def test_a_value_arrives(path: str) -> None:
    value, where, place = CASES[path]
    kind, _, name = where.partition("/")
    found: Any = next(
        one
        for one in rendered(nested(ALL_ON | {path: value}))
        if one["kind"] == kind and one["metadata"]["name"].endswith(name)
    )
    for key in place.split("."):
        found = found[int(key)] if isinstance(found, list) else found[key]

    assert value.items() <= found.items() if isinstance(value, dict) else found in (value, value[0])


@pytest.mark.parametrize("path", SWITCHES)
def test_a_switch_brings_its_objects(path: str) -> None:
    def parts(value: bool) -> set[tuple[str, str]]:
        objects = rendered(nested(ALL_ON | {path: value}))
        return {(one["kind"], one["metadata"]["labels"]["app.kubernetes.io/component"]) for one in objects}

    on, off = parts(True), parts(False)

    assert on - off == SWITCHES[path]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"threshold": {}}, "'threshold' not allowed"),
        ({"podMonitors": {"intervall": "30s"}}, "'intervall' not allowed"),
        ({"source": "log"}, "/source"),
        ({"podMonitors": {"interval": "2m"}}, "/podMonitors/interval"),
        ({"networkPolicy": {"enabled": True}}, "name the namespaces"),
        (nested(SERVED | {"exporter.image": ""}), "name the image"),
        (nested(SERVED | {"exporter.predictors": []}), "name and url of each"),
        (
            nested(SERVED | {"exporter.predictors": [{"name": "chat", "url": "vllm:8000"}]}),
            "/exporter/predictors/0/url",
        ),
    ],
)
def test_a_mistake_is_refused(values: Object, complaint: str) -> None:
    assert complaint in refused(values)


def test_helm_finds_no_fault() -> None:
    answer = helm("lint", "--strict", "--kube-version", KUBERNETES_VERSION, str(CHART))

    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_chart_and_exporter_have_one_version() -> None:
    assert yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"] == __version__
