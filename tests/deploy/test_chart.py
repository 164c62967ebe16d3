"""The chart renders what the mixin renders, takes every value that it documents, and no other."""

from __future__ import annotations

import base64
import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

import chartfiles
import chartvalues
from deploy import kubeschemas
from deploy.chart import CHART, KUBERNETES_VERSION, Object, helm, named, nested, refused, rendered, text_of
from deploy.cli import exporter
from deploy.manifests import KUBERNETES, parse, read
from fieldtools import ROOT, run
from specdec_exporter import __version__

pytestmark = pytest.mark.field

VALUES = (CHART / "values.yaml").read_text(encoding="utf-8")
THRESHOLDS: dict[str, float] = yaml.safe_load(VALUES)["thresholds"]
LARGEST_SECRET_BYTES = 1 << 20
URL = "https://grafana.example.net/sub"
DIGEST = f"sha256:{'0' * 64}"
LISTED = {"predictors": [{"name": "chat", "url": "http://chat.prod.svc"}], "window": "6m"}
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
        "slackChannel": '#it\'s "ours"',
        "emailTo": "a@example.net",
        "emailFrom": "b@example.net",
        "emailSmarthost": "mail.example.net:25",
        "emailUsername": "c: d",
        "webhookURL": "https://hook.example.net/?a=b&c",
    }
    settings = {chartfiles.ADDRESSES.get(key, key): value for key, value in own.items()}
    config = f"{{ grafana_url: '{url}', alertmanager+: {json.dumps(settings)} }}"

    chart = rendered({"grafanaURL": url, "alertmanagerConfig": own | {"enabled": True, "namespaces": ["prod", "test"]}})

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


def test_it_has_neither_token_nor_rights() -> None:
    chart = standalone()
    assert not {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"} & {one["kind"] for one in chart}
    assert named(chart, "Deployment")["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_it_runs_as_the_sidecar_does() -> None:
    (container,) = named(standalone(), "Deployment")["spec"]["template"]["spec"]["containers"]
    (sidecar,) = read(KUBERNETES / "sidecar/container/container.yaml")["template"]["spec"]["containers"]

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

POD, CONTAINER = "spec.template.spec", "spec.template.spec.containers.0"
SIDECARS = "NetworkPolicy/sidecars"
ENDPOINT = "spec.podMetricsEndpoints.0"
SELECTED = "spec.matchResources.namespaceSelector.matchExpressions.0.values"
# A value other than the default; the object and the place where it has to arrive; what arrives there, if not the value.
CASES: dict[str, tuple[Any, ...]] = {
    "labels": ({"team": "ml"}, "Service", "metadata.labels.team", "ml"),
    "operatorLabels": ({"prometheus": "ours"}, "PrometheusRule", "metadata.labels.prometheus", "ours"),
    "namespace": ("elsewhere", "Service", "metadata.namespace"),
    "alertLabels": ({"tier": "1"}, "PrometheusRule", "spec.groups.-1.rules.0.labels.tier", "1"),
    "dashboards.labels": ({"grafana_dashboard": "yes"}, "ConfigMap/ab", "metadata.labels.grafana_dashboard", "yes"),
    "dashboards.annotations": ({"grafana_folder": "ML"}, "ConfigMap/ab", "metadata.annotations"),
    "podMonitors.interval": ("15s", "PodMonitor/llm", f"{ENDPOINT}.interval"),
    "podMonitors.scrapeTimeout": ("5s", "PodMonitor/llm", f"{ENDPOINT}.scrapeTimeout"),
    "podMonitors.namespaces": (["prod"], "PodMonitor/llm", "spec.namespaceSelector.matchNames"),
    "alertmanagerConfig.labels": ({"for": "us"}, "AlertmanagerConfig", "metadata.labels.for", "us"),
    "alertmanagerConfig.namespaces": (["prod"], "AlertmanagerConfig", "metadata.namespace", "prod"),
    "networkPolicy.predictorNamespaces": (["prod"], SIDECARS, "metadata.namespace", "prod"),
    "networkPolicy.from": ([{"ipBlock": {"cidr": "10.0.0.0/8"}}], SIDECARS, "spec.ingress.0.from"),
    "exporter.image.repository": ("own/specdec", "Deployment", f"{CONTAINER}.image", f"own/specdec@{DIGEST}"),
    "exporter.image.tag": ("9.9", "Deployment", f"{CONTAINER}.image", f"own/specdec@{DIGEST}"),
    "exporter.image.digest": (DIGEST, "Deployment", f"{CONTAINER}.image", f"own/specdec@{DIGEST}"),
    "exporter.image.pullPolicy": ("Always", "Deployment", f"{CONTAINER}.imagePullPolicy"),
    "exporter.image.pullSecrets": ([{"name": "pull"}], "Deployment", f"{POD}.imagePullSecrets"),
    "exporter.config": (LISTED, "ConfigMap/config", "data", {"specdec.yaml": yaml.safe_dump(LISTED)}),
    "exporter.serviceAccount.name": ("ours", "Deployment", f"{POD}.serviceAccountName"),
    "exporter.serviceAccount.annotations": ({"role": "x"}, "ServiceAccount/ours", "metadata.annotations"),
    "exporter.env": ([{"name": "A", "value": "b"}], "Deployment", f"{CONTAINER}.env"),
    "exporter.volumes": ([{"name": "v", "emptyDir": {}}], "Deployment", f"{POD}.volumes.1.name", "v"),
    "exporter.volumeMounts": (
        [{"name": "v", "mountPath": "/v"}],
        "Deployment",
        f"{CONTAINER}.volumeMounts.1.name",
        "v",
    ),
    "exporter.resources": ({"limits": {"cpu": "2"}}, "Deployment", f"{CONTAINER}.resources.limits.cpu", "2"),
    "exporter.podLabels": ({"mesh": "off"}, "Deployment", "spec.template.metadata.labels.mesh", "off"),
    "exporter.podAnnotations": ({"note": "n"}, "Deployment", "spec.template.metadata.annotations.note", "n"),
    "exporter.nodeSelector": ({"disk": "ssd"}, "Deployment", f"{POD}.nodeSelector"),
    "exporter.tolerations": ([{"operator": "Exists"}], "Deployment", f"{POD}.tolerations"),
    "exporter.affinity": ({"nodeAffinity": {}}, "Deployment", f"{POD}.affinity"),
    "exporter.priorityClassName": ("high", "Deployment", f"{POD}.priorityClassName"),
    "exporter.serviceMonitor.interval": ("20s", "ServiceMonitor", "spec.endpoints.0.interval"),
    "exporter.serviceMonitor.scrapeTimeout": ("7s", "ServiceMonitor", "spec.endpoints.0.scrapeTimeout"),
    "sidecarInjection.namespaces": (["prod"], "MutatingAdmissionPolicyBinding", SELECTED),
    "sidecarInjection.url": (
        "http://127.0.0.1:8000",
        "MutatingAdmissionPolicy",
        "spec.variables.1.expression",
        '"http://127.0.0.1:8000"',
    ),
}
# Objects that each switch brings.
SWITCHES = {
    "monitoring.enabled": {"PrometheusRule", "ConfigMap/ab", "PodMonitor/llm", "AlertmanagerConfig"},
    "rules.enabled": {"PrometheusRule"},
    "dashboards.enabled": {"ConfigMap/ab"},
    "podMonitors.enabled": {"PodMonitor/llm"},
    "alertmanagerConfig.enabled": {"AlertmanagerConfig", "ConfigMap/messages"},
    "networkPolicy.enabled": {"NetworkPolicy/sidecars"},
    "exporter.enabled": {"Deployment", "Service", "ServiceMonitor", "ServiceAccount"},
    "exporter.serviceAccount.create": {"ServiceAccount"},
    "exporter.serviceMonitor.enabled": {"ServiceMonitor"},
    "sidecarInjection.enabled": {"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"},
    "sidecarInjection.log": {"Role", "RoleBinding"},
}
# In tests of their own, above.
ELSEWHERE = {*TEXTS, "source", "severities", *(f"thresholds.{name}" for name in THRESHOLDS)}
ELSEWHERE |= {f"alertmanagerConfig.{name}" for name in (*chartfiles.ADDRESSES, "chat", "pager")}
NAMESPACES = {path: case[0] for path, case in CASES.items() if path.endswith("amespaces")}
ALL_ON = dict.fromkeys(SWITCHES, True) | NAMESPACES
EVERYTHING = nested(ALL_ON | {path: case[0] for path, case in CASES.items()})


def kinds(chart: list[Object]) -> set[str]:
    """Kinds, and kinds with the last word of the name."""
    return {one["kind"] for one in chart} | {called(one) for one in chart}


def called(one: Object) -> str:
    return f"{one['kind']}/{one['metadata']['name'].rpartition('-')[2]}"


def test_every_value_has_a_test() -> None:
    paths = {
        ".".join(path) for path, *_ in chartvalues.leaves(yaml.safe_load(VALUES), chartvalues.comments(VALUES), ())
    }

    assert paths == {*CASES, *SWITCHES, *ELSEWHERE}


@pytest.mark.parametrize("path", CASES)
def test_a_value_arrives(path: str) -> None:
    value, where, place, *instead = CASES[path]
    found: Any = next(one for one in rendered(EVERYTHING) if where in {one["kind"], called(one)})
    for key in place.split("."):
        found = found[int(key)] if isinstance(found, list) else found[key]

    assert found == (instead or [value])[0]


def test_the_image_has_the_tag_where_there_is_no_digest() -> None:
    (container,) = named(standalone(**{"exporter.image.tag": "9.9"}), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]

    assert container["image"] == "registry.example.com/specdec-exporter:9.9"


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
    assert yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"] == __version__


@pytest.mark.parametrize("source", chartfiles.SOURCES)
def test_a_release_fits_into_its_secret(source: str) -> None:
    """Helm keeps chart, values and manifest of a release in one Secret."""
    values = json.dumps(EVERYTHING | {"source": source})
    release = {
        "manifest": text_of(EVERYTHING | {"source": source}),
        "config": values,
        "chart": {
            str(file.relative_to(CHART)): base64.b64encode(file.read_bytes()).decode()
            for file in CHART.rglob("*")
            if file.is_file()
        },
    }

    size = len(base64.b64encode(gzip.compress(json.dumps(release).encode())))

    assert size < LARGEST_SECRET_BYTES / 2


def test_kubernetes_and_the_operators_allow_it(tmp_path: Path) -> None:
    kubeschemas.write(tmp_path)
    pattern = f"{tmp_path}/{{{{.ResourceKind}}}}-{{{{.ResourceAPIVersion}}}}.json"
    faulty = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {port: 1}\n"
    (tmp_path / "chart.yaml").write_text(text_of(EVERYTHING), encoding="utf-8")
    (tmp_path / "faulty.yaml").write_text(faulty, encoding="utf-8")

    allowed, found = (
        run("kubeconform", "-strict", "-summary", "-schema-location", pattern, tmp_path / name)
        for name in ("chart.yaml", "faulty.yaml")
    )

    assert allowed.returncode == 0, allowed.stdout
    assert "Skipped: 0" in allowed.stdout
    assert "additional" in found.stdout
