"""The chart renders what the mixin renders, takes every value that it documents, and no other."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import chartfiles
import chartvalues
from deploy.chart import CHART, KUBERNETES_VERSION, Object, helm, named, nested, refused, rendered, text_of
from deploy.cli import exporter
from deploy.manifests import KUBERNETES, parse
from fieldtools import ROOT
from specdec_exporter import __version__

pytestmark = pytest.mark.field

VALUES = (CHART / "values.yaml").read_text(encoding="utf-8")
THRESHOLDS: dict[str, float] = yaml.safe_load(VALUES)["thresholds"]
LARGEST_SECRET_BYTES = 1 << 20
URL = "https://grafana.example.net/sub"
# The chart's values of the pack that are texts, each other than its default.
TEXTS = {
    "grafanaURL": URL,
    "runbookURL": "https://wiki.example.net/runbooks?page=",
    "revisionLabel": "canary",
    "vllmServiceLabel": "llm_isvc_name",
    "controlServices": r"(.+)-(?:off|plain)\d",
    "scaleToZeroServices": r"code-.+|'batch'",
    "selector": 'job=~"predictors/.+", site!="<a>"',
}


def documents(objects: list[Object]) -> dict[str, Any]:
    """Dashboards by file name."""
    maps = [one["data"] for one in objects if one["metadata"]["labels"].get("grafana_dashboard")]
    return {name: json.loads(text) for data in maps for name, text in data.items()}


# --- The same as the mixin -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", chartfiles.SOURCES)
@pytest.mark.parametrize("texts", [{}, TEXTS], ids=["defaults", "own"])
def test_values_do_what_the_same_settings_do_in_the_mixin(source: str, texts: dict[str, str]) -> None:
    chosen = random.Random(f"{source} {texts}")
    thresholds = {
        name: chosen.randrange(2, 5000) if isinstance(default, int) else round(chosen.uniform(0.01, 0.99), 4)
        for name, default in THRESHOLDS.items()
    }
    settings = {chartfiles.TEXTS[value][0]: text for value, text in texts.items()}
    expected = chartfiles.mixin(ROOT, json.dumps({"source": source} | thresholds | settings))

    chart = rendered({"source": source, "thresholds": thresholds} | texts)

    assert named(chart, "PrometheusRule")["spec"]["groups"] == expected["groups"]
    assert documents(chart) == expected["dashboards"]


def test_the_defaults_are_the_mixins() -> None:
    chart = rendered({})
    rules = yaml.safe_load((ROOT / "rules/rendered/specdec.rules.yaml").read_text(encoding="utf-8"))

    assert named(chart, "PrometheusRule")["spec"] == rules
    assert "@@" not in text_of({})


@pytest.mark.parametrize("url", ["", URL])
def test_the_alertmanagerconfig_is_the_mixins(url: str) -> None:
    own = {
        "chat": ["email", "webhook"],
        "pager": ["slack", "pagerduty"],
        "secretName": "our-secrets",
        "slackChannel": "#it's \"ours\"",
        "emailTo": "a@example.net",
        "emailFrom": "b@example.net",
        "emailSmarthost": "mail.example.net:25",
        "emailUsername": "c: d",
        "webhookURL": "https://hook.example.net/?a=b&c",
    }
    settings = {chartfiles.ADDRESSES.get(key, key): value for key, value in own.items()}
    config = f"{{ grafana_url: '{url}', alertmanager+: {json.dumps(settings)} }}"

    chart = rendered(
        {"grafanaURL": url, "alertmanagerConfig": own | {"enabled": True, "namespaces": ["prod", "test"]}}
    )

    found = [one for one in chart if one["kind"] == "AlertmanagerConfig"]
    assert {one["metadata"]["namespace"] for one in found} == {"prod", "test"}
    expected = chartfiles.mixin(ROOT, config)["alertmanagerConfig"]["spec"]
    assert [one["spec"] for one in found] == [expected] * 2
    template = (ROOT / "alertmanager/templates/specdec.tmpl").read_text(encoding="utf-8")
    assert named(chart, "ConfigMap", "messages")["data"] == {"specdec.tmpl": template}


def test_the_podmonitors_are_those_of_the_kustomization() -> None:
    chart = rendered({})

    for name, file in {"": "podmonitor.yaml", "llm": "podmonitor-llm.yaml"}.items():
        (expected,) = parse((KUBERNETES / "monitoring" / file).read_text(encoding="utf-8"))
        found = [one["spec"] for one in chart if one["metadata"]["name"] == f"pack-specdec-exporter{name and '-llm'}"]
        assert expected["spec"] in found


# --- Alerts ----------------------------------------------------------------------------------------------------------


def severities(chart: list[Object], alert: str) -> list[str]:
    rules = [rule for group in named(chart, "PrometheusRule")["spec"]["groups"] for rule in group["rules"]]
    return [rule["labels"]["severity"] for rule in rules if rule.get("alert") == alert]


def test_an_alert_gets_no_more_than_its_highest_severity() -> None:
    given = {"SpecDecodeRestartLoop": "warning", "SpecDecodeHarmful": "info", "SpecDecodeSaturated": "none"}
    before, after = rendered({}), rendered({"severities": given})

    assert severities(before, "SpecDecodeRestartLoop") == ["critical", "warning"]
    assert severities(after, "SpecDecodeRestartLoop") == ["warning"], "there is a rule for tickets, so the page goes"
    assert (severities(before, "SpecDecodeHarmful"), severities(after, "SpecDecodeHarmful")) == (["critical"], ["info"])
    assert (severities(before, "SpecDecodeSaturated"), severities(after, "SpecDecodeSaturated")) == (["warning"], [])
    assert severities(before, "SpecDecodeTargetDown") == severities(after, "SpecDecodeTargetDown")


def test_an_alert_that_does_not_exist_is_a_mistake() -> None:
    assert "the pack has no alert SpecDecodeHarmless" in refused({"severities": {"SpecDecodeHarmless": "info"}})


# --- The standalone exporter -----------------------------------------------------------------------------------------

LISTED = {"predictors": [{"name": "chat", "url": "http://chat.prod.svc"}], "discovery": None}


def standalone(**values: Any) -> list[Object]:
    return rendered(nested({"monitoring.enabled": False, "exporter.enabled": True, **values}))


def test_the_exporter_takes_the_configuration(tmp_path: Path) -> None:
    chart = standalone(**{"exporter.config": LISTED})
    (container,) = named(chart, "Deployment")["spec"]["template"]["spec"]["containers"]
    (file,) = named(chart, "ConfigMap", "config")["data"].values()
    (tmp_path / "specdec.yaml").write_text(file, encoding="utf-8")

    arguments = [one.replace("/etc/specdec", str(tmp_path)) for one in container["args"]]
    answer = exporter(*arguments, "--config.check", environment={})

    assert answer.returncode == 0, answer.stderr
    assert container["volumeMounts"][0]["mountPath"] == "/etc/specdec"


def test_a_changed_configuration_makes_a_new_pod() -> None:
    one, other = (
        named(standalone(**{"exporter.config": LISTED | {"window": window}}), "Deployment") for window in ("5m", "6m")
    )

    assert one["spec"]["template"] != other["spec"]["template"]
    assert one["spec"]["strategy"] == {"type": "Recreate"}, "two exporters would count everything twice"


def test_only_discovery_has_a_token_and_rights() -> None:
    listed, cluster = standalone(**{"exporter.config": LISTED}), standalone()
    some = standalone(**{"exporter.config.discovery.kubernetes": {"namespaces": ["prod", "test"], "log": True}})
    kinds = {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"}

    assert not kinds & {one["kind"] for one in listed}
    assert named(listed, "Deployment")["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    assert named(cluster, "Deployment")["spec"]["template"]["spec"]["automountServiceAccountToken"] is True
    (role,) = (one for one in cluster if one["kind"] == "ClusterRole")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
    roles = [one for one in some if one["kind"] == "Role"]
    assert [one["metadata"]["namespace"] for one in roles] == ["prod", "test"]
    assert roles[0]["rules"][1] == {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]}
    account = named(some, "ServiceAccount")["metadata"]
    for binding in (one for one in some if one["kind"] == "RoleBinding"):
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
        assert binding["roleRef"]["name"] == roles[0]["metadata"]["name"]


def test_it_runs_as_the_sidecar_does() -> None:
    (container,) = named(standalone(), "Deployment")["spec"]["template"]["spec"]["containers"]
    example = parse((KUBERNETES / "predictor/inferenceservice.yaml").read_text(encoding="utf-8"))[0]
    sidecar = example["spec"]["predictor"]["containers"][1]

    assert container["securityContext"] == sidecar["securityContext"]
    assert container["livenessProbe"] == sidecar["livenessProbe"]
    assert container["ports"] == sidecar["ports"]
    assert container["image"] == f"registry.example.com/specdec-exporter:{__version__}"


def test_service_and_monitor_find_the_pod_and_no_other() -> None:
    chart = standalone()
    template = named(chart, "Deployment")["spec"]["template"]
    service, monitor = named(chart, "Service"), named(chart, "ServiceMonitor")

    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert "app.kubernetes.io/instance" in service["spec"]["selector"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["honorLabels"], "the labels of a series are of its predictor"
    assert endpoint["port"] == service["spec"]["ports"][0]["name"]


# --- All values ------------------------------------------------------------------------------------------------------

# Values other than the defaults, and the object and place where each of them has to arrive.
EXPORTER = "Deployment", "spec.template.spec"
CONTAINER = "Deployment", "spec.template.spec.containers.0"
MONITOR = "ServiceMonitor", "spec.endpoints.0"
POLICY = "NetworkPolicy/sidecars", "spec.ingress.0"
CASES: dict[str, tuple[Any, str, str]] = {
    "labels": ({"team": "ml"}, "Service", "metadata.labels.team"),
    "operatorLabels": ({"release": None, "prometheus": "ours"}, "PrometheusRule", "metadata.labels.prometheus"),
    "namespace": ("elsewhere", "Service", "metadata.namespace"),
    "alertLabels": ({"tier": "1"}, "PrometheusRule", "spec.groups.-1.rules.0.labels.tier"),
    "dashboards.labels": ({"grafana_dashboard": "yes"}, "ConfigMap/ab", "metadata.labels.grafana_dashboard"),
    "dashboards.annotations": ({"grafana_folder": "ML"}, "ConfigMap/ab", "metadata.annotations.grafana_folder"),
    "podMonitors.interval": ("15s", "PodMonitor/llm", "spec.podMetricsEndpoints.0.interval"),
    "podMonitors.scrapeTimeout": ("5s", "PodMonitor/llm", "spec.podMetricsEndpoints.0.scrapeTimeout"),
    "podMonitors.namespaces": (["prod"], "PodMonitor/llm", "spec.namespaceSelector.matchNames"),
    "alertmanagerConfig.labels": ({"for": "us"}, "AlertmanagerConfig", "metadata.labels.for"),
    "alertmanagerConfig.namespaces": (["prod"], "AlertmanagerConfig", "metadata.namespace"),
    "networkPolicy.predictorNamespaces": (["prod"], "NetworkPolicy/sidecars", "metadata.namespace"),
    "networkPolicy.from": ([{"ipBlock": {"cidr": "10.0.0.0/8"}}], POLICY[0], f"{POLICY[1]}.from"),
    "exporter.image.repository": ("own.example.com/specdec", CONTAINER[0], f"{CONTAINER[1]}.image"),
    "exporter.image.tag": ("9.9", CONTAINER[0], f"{CONTAINER[1]}.image"),
    "exporter.image.digest": (f"sha256:{'0' * 64}", CONTAINER[0], f"{CONTAINER[1]}.image"),
    "exporter.image.pullPolicy": ("Always", CONTAINER[0], f"{CONTAINER[1]}.imagePullPolicy"),
    "exporter.image.pullSecrets": ([{"name": "pull"}], EXPORTER[0], f"{EXPORTER[1]}.imagePullSecrets"),
    "exporter.config": ({"window": "6m"}, "ConfigMap/config", "data"),
    "exporter.serviceAccount.name": ("ours", EXPORTER[0], f"{EXPORTER[1]}.serviceAccountName"),
    "exporter.serviceAccount.annotations": ({"role": "x"}, "ServiceAccount", "metadata.annotations"),
    "exporter.env": ([{"name": "A", "value": "b"}], CONTAINER[0], f"{CONTAINER[1]}.env"),
    "exporter.volumes": ([{"name": "v", "emptyDir": {}}], EXPORTER[0], f"{EXPORTER[1]}.volumes.1"),
    "exporter.volumeMounts": ([{"name": "v", "mountPath": "/v"}], CONTAINER[0], f"{CONTAINER[1]}.volumeMounts.1"),
    "exporter.resources": ({"limits": {"memory": "1Gi"}}, CONTAINER[0], f"{CONTAINER[1]}.resources.limits.memory"),
    "exporter.podLabels": ({"mesh": "off"}, EXPORTER[0], "spec.template.metadata.labels.mesh"),
    "exporter.podAnnotations": ({"note": "n"}, EXPORTER[0], "spec.template.metadata.annotations.note"),
    "exporter.nodeSelector": ({"disk": "ssd"}, EXPORTER[0], f"{EXPORTER[1]}.nodeSelector"),
    "exporter.tolerations": ([{"operator": "Exists"}], EXPORTER[0], f"{EXPORTER[1]}.tolerations"),
    "exporter.affinity": ({"nodeAffinity": {}}, EXPORTER[0], f"{EXPORTER[1]}.affinity"),
    "exporter.priorityClassName": ("high", EXPORTER[0], f"{EXPORTER[1]}.priorityClassName"),
    "exporter.serviceMonitor.interval": ("20s", MONITOR[0], f"{MONITOR[1]}.interval"),
    "exporter.serviceMonitor.scrapeTimeout": ("7s", MONITOR[0], f"{MONITOR[1]}.scrapeTimeout"),
    "sidecarInjection.namespaces": (["prod"], "ConfigMap/sidecar", "metadata.namespace"),
    "sidecarInjection.url": ("http://127.0.0.1:8000", "ConfigMap/sidecar", "data.url"),
}
# Objects that each switch brings.
SWITCHES = {
    "monitoring.enabled": {"PrometheusRule", "ConfigMap/ab", "PodMonitor/llm", "AlertmanagerConfig"},
    "rules.enabled": {"PrometheusRule"},
    "dashboards.enabled": {"ConfigMap/ab"},
    "podMonitors.enabled": {"PodMonitor/llm"},
    "alertmanagerConfig.enabled": {"AlertmanagerConfig", "ConfigMap/messages"},
    "networkPolicy.enabled": {"NetworkPolicy/sidecars"},
    "exporter.enabled": {"Deployment", "Service", "ServiceMonitor", "ServiceAccount", "ClusterRole"},
    "exporter.rbac": {"ClusterRole", "ClusterRoleBinding"},
    "exporter.serviceAccount.create": {"ServiceAccount"},
    "exporter.serviceMonitor.enabled": {"ServiceMonitor"},
    "sidecarInjection.enabled": {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ConfigMap/sidecar"},
    "sidecarInjection.log": {"Role", "RoleBinding"},
}
# In tests of their own, above.
ELSEWHERE = {*TEXTS, "source", "severities", *(f"thresholds.{name}" for name in THRESHOLDS)}
ELSEWHERE |= {f"alertmanagerConfig.{name}" for name in (*chartfiles.ADDRESSES, "chat", "pager")}
ALL_ON = dict.fromkeys(SWITCHES, True) | {
    path: CASES[path][0] for path in CASES if path.endswith(("amespaces", "exporter.config.discovery"))
}


def kinds(chart: list[Object]) -> set[str]:
    """Kinds, and kinds with what the name has after the release's."""
    found = {one["kind"] for one in chart}
    return found | {f"{one['kind']}/{one['metadata']['name'].rpartition('-')[2]}" for one in chart}


def everything() -> Object:
    """All switches on, and each value other than its default."""
    return nested(ALL_ON | {path: value for path, (value, _, _) in CASES.items()})


def test_every_value_has_a_test() -> None:
    paths = {".".join(path) for path, *_ in chartvalues.leaves(yaml.safe_load(VALUES), chartvalues.comments(VALUES), ())}

    assert paths == {*CASES, *SWITCHES, *ELSEWHERE}


@pytest.mark.parametrize("path", CASES)
def test_a_value_arrives(path: str) -> None:
    value, where, place = CASES[path]
    kind, _, name = where.partition("/")
    found: Any = named(rendered(everything()), kind, name) if name else next(
        one for one in rendered(everything()) if one["kind"] == kind
    )
    for key in place.split("."):
        found = found[int(key)] if isinstance(found, list) else found[key]
    if path == "exporter.image.tag":  # the digest beats it
        found = named(rendered(nested({"exporter.enabled": True, path: value})), "Deployment")["spec"]["template"]["spec"]
        found = found["containers"][0]["image"]

    (wanted, *_) = list(value.values())[-1:] if isinstance(value, dict) and not isinstance(found, dict) else [value]
    wanted = wanted[0] if isinstance(wanted, list) and not isinstance(found, list) else wanted
    wanted = wanted["memory"] if path == "exporter.resources" else wanted
    if path == "exporter.config":
        assert yaml.safe_load(found["specdec.yaml"])["window"] == "6m"
    elif path.startswith("exporter.image.") and "ull" not in path:
        assert wanted in found
    else:
        assert found == wanted


@pytest.mark.parametrize("path", SWITCHES)
def test_a_switch_brings_its_objects(path: str) -> None:
    on, off = kinds(rendered(nested(ALL_ON))), kinds(rendered(nested(ALL_ON | {path: False})))

    assert SWITCHES[path] <= on
    assert not SWITCHES[path] & off


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"exporter": {"enabled": True, "image": {"tag": "latest"}}}, "/exporter/image/tag"),
        ({"threshold": {}}, "'threshold' not allowed"),
        ({"thresholds": {"min_request": 1}}, "'min_request' not allowed"),
        ({"thresholds": {"min_requests": "many"}}, "/thresholds/min_requests"),
        ({"source": "log"}, "/source"),
        ({"podMonitors": {"interval": "2m"}}, "/podMonitors/interval"),
        ({"grafanaURL": "grafana/"}, "/grafanaURL"),
        ({"monitoring": {"enabled": False}}, "nothing is enabled"),
        ({"alertmanagerConfig": {"enabled": True}}, "name the namespaces"),
        ({"sidecarInjection": {"enabled": True}}, "name the namespaces"),
    ],
)
def test_a_mistake_is_refused(values: Object, complaint: str) -> None:
    assert complaint in refused(values)


# --- Helm, Kubernetes ------------------------------------------------------------------------------------------------


def test_helm_finds_no_fault() -> None:
    answer = helm("lint", "--strict", "--kube-version", KUBERNETES_VERSION, str(CHART))

    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_chart_and_exporter_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))

    assert chart["appVersion"] == __version__
    assert not re.search(r"latest", text_of(everything()).lower().replace("latest_", ""))
