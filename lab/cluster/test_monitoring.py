"""From a pod to a message: PodMonitor, rules and AlertmanagerConfig as the operator gives them to real servers."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from acted.asking import until
from alertmanager.catalogue import OBJECT, TEMPLATES
from alertmanager.server import Receiver, receiver
from cluster import shipped
from cluster.api import Object
from cluster.controlplane import ControlPlane
from cluster.operator import generated
from cluster.predictors import pod_of
from cluster.test_kserve import PREDICTOR
from deploy.manifests import KUBERNETES
from report import Transcript
from support import tsdb
from support.fieldtools import ROOT, tool
from support.processes import Server, beside, free_port

CLUSTER = "eu-1"
ALERTMANAGER = "v0.25.0"  # the operator writes what this release understands; it is Debian's
SELECTED = {"matchLabels": {"release": "kube-prometheus-stack"}}
# A Prometheus and an Alertmanager of the operator. The Prometheus reads monitors of its own namespace, not those that
# other tests left in theirs.
STACK = f"""
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {{name: k8s}}
spec:
  replicas: 1
  serviceAccountName: prometheus
  podMonitorSelector: {SELECTED}
  ruleSelector: {SELECTED}
  externalLabels: {{cluster: {CLUSTER}}}
---
apiVersion: monitoring.coreos.com/v1
kind: Alertmanager
metadata: {{name: main}}
spec:
  replicas: 1
  version: {ALERTMANAGER}
  alertmanagerConfigSelector: {{}}
  alertmanagerConfigNamespaceSelector: {{}}
  configSecret: alertmanager-own
  configMaps: [specdec-templates]
---
apiVersion: v1
kind: Secret
metadata: {{name: alertmanager-own}}
stringData:
  alertmanager.yaml: |
    route: {{receiver: nobody}}
    receivers: [{{name: nobody}}]
    templates: [/etc/alertmanager/configmaps/specdec-templates/*.tmpl]
---
apiVersion: v1
kind: ServiceAccount
metadata: {{name: prometheus}}
"""
# Of the pod that the operator makes; a container beside Prometheus puts them into the configuration.
VARIABLES = {"SHARD": "0", "POD_NAME": "prometheus-k8s-0"}
SECRETS = ("slack-webhook-url", "pagerduty-routing-key", "smtp-password", "webhook-token")


@dataclass(frozen=True, slots=True)
class Deployed:
    """Namespaces of the predictor and of the monitoring; the predictor's pod, and its address."""

    plane: ControlPlane
    namespace: str
    monitoring: str
    pod: Object
    address: str


@pytest.fixture
def deployed(kserve: ControlPlane, operator: ControlPlane, new_namespace: Callable[..., str]) -> Deployed:
    plane, namespace, monitoring = kserve, new_namespace(), new_namespace()
    plane.apply(shipped.into(namespace, shipped.objects(PREDICTOR)))
    plane.apply(shipped.into(monitoring, shipped.objects(KUBERNETES / "monitoring")))
    plane.apply(STACK, f"--namespace={monitoring}")
    # What the operator's documentation grants a Prometheus.
    reader = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"prometheus-{monitoring}"},
        "roleRef": reader,
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": monitoring}],
    }
    plane.apply([binding])
    pod, address = pod_of(plane, namespace), plane.address()
    plane.run_pod(namespace, pod["metadata"]["name"], address)
    return Deployed(plane, namespace, monitoring, pod, address)


@contextlib.asynccontextmanager
async def sidecar(there: Deployed, predictor: Server, directory: Path) -> AsyncIterator[Server]:
    """The exporter with the pod's address and the manifest's name. It has no log: there is no node to ask for it."""
    (container,) = (one for one in there.pod["spec"]["containers"] if one["name"] == "specdec-exporter")
    port = container["ports"][0]["containerPort"]
    command = (
        *(sys.executable, "-m", "specdec_exporter", "serve"),
        f"--web.listen-address={there.address}:{port}",
        f"--predictor.url={predictor.url}",
        f"--predictor.name={there.pod['metadata']['labels']['serving.kserve.io/inferenceservice']}",
    )
    async with beside("exporter", command, port=port, directory=directory, host=there.address) as server:
        yield server


@contextlib.asynccontextmanager
async def predictor(directory: Path) -> AsyncIterator[Server]:
    """A simulated vLLM under load."""
    port = free_port()
    command = (
        *("env", f"PYTHONPATH={ROOT / 'deploy'}", sys.executable, "-m", "demo.simulator"),
        f"--listen-address=127.0.0.1:{port}",
        "--uptime-seconds=3600",
        "--load=3/s",
        "--speed=10",
    )
    async with beside("predictor", command, port=port, ready="/metrics", directory=directory) as server:
        yield server


def hurried(rules: Any) -> Any:
    """The rules, evaluated every second, with a second for each minute of their ranges and waiting times."""
    for group in rules["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            for key in rule.keys() & {"expr", "for", "keep_firing_for"}:
                rule[key] = re.sub(r"\b(\d+)m\b", r"\1s", rule[key])
    return rules


def reaching(plane: ControlPlane, discovery: Any, token: Path) -> None:
    """Let a discovery that expects to run in a pod find the API server."""
    discovery["api_server"] = plane.url
    discovery["tls_config"] = {"ca_file": str(plane.authority_file)}
    discovery["authorization"] = {"credentials_file": str(token)}


@contextlib.asynccontextmanager
async def prometheus(there: Deployed, routes: Server, directory: Path) -> AsyncIterator[Server]:
    """Prometheus 3 with the operator's configuration and rules; only paths, addresses and intervals are other ones."""
    plane = there.plane
    config = generated(plane, there.monitoring, "prometheus-k8s", lambda one: one["scrape_configs"])
    rules = plane.api.wait("v1/configmaps", there.monitoring, "prometheus-k8s-rulefiles-0")["data"]
    for name, text in rules.items():
        (directory / name).write_text(yaml.safe_dump(hurried(yaml.safe_load(text))), encoding="utf-8")
    (directory / "token").write_text(plane.token(there.monitoring, "prometheus"), encoding="ascii")
    config["rule_files"] = [f"{directory}/{name}" for name in rules]
    for job in config["scrape_configs"]:
        job["scrape_interval"] = job["scrape_timeout"] = "1s"
        for discovery in job["kubernetes_sd_configs"]:
            reaching(plane, discovery, directory / "token")
    alertmanagers = [{"static_configs": [{"targets": [routes.url.removeprefix("http://")]}]}]
    config["alerting"] = {"alertmanagers": alertmanagers}
    text = yaml.safe_dump(config)
    for variable, value in VARIABLES.items():
        text = text.replace(f"$({variable})", value)
    async with beside(**tsdb.prometheus_of(directory / "prometheus", text, program="prometheus3-sd")) as server:
        yield server


@contextlib.asynccontextmanager
async def alertmanager(there: Deployed, directory: Path) -> AsyncIterator[Server]:
    """Alertmanager with the operator's configuration; only paths and waiting times are other ones."""
    config = generated(
        there.plane, there.monitoring, "alertmanager-main-generated", lambda one: "specdec" in str(one["route"])
    )
    config["templates"] = [f"{TEMPLATES}/*.tmpl"]
    for route in config["route"]["routes"]:
        route |= {"group_wait": "1s", "group_interval": "1s"}
    file = directory / "alertmanager.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    port = free_port()
    command = (
        tool("prometheus-alertmanager"),
        f"--config.file={file}",
        f"--storage.path={directory}/alertmanager",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    )
    async with beside("alertmanager", command, port=port, directory=directory) as server:
        yield server


def route_messages(there: Deployed, taking: Receiver) -> None:
    """Create the AlertmanagerConfig in the predictors' namespace, with a Secret whose addresses are the receiver's."""
    values = dict.fromkeys(SECRETS, "0123456789abcdef0123456789abcdef") | {"slack-webhook-url": f"{taking.url}/slack"}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "specdec-alertmanager"}, "stringData": values}
    (config,) = shipped.objects(OBJECT)
    for one in config["spec"]["receivers"]:
        for pager in one.get("pagerdutyConfigs", ()):
            pager["url"] = f"{taking.url}/pagerduty"
    there.plane.apply(shipped.into(there.namespace, [secret, config]))


async def test_a_predictor_that_stops_answering_becomes_a_message(
    deployed: Deployed, transcript: Transcript, tmp_path: Path
) -> None:
    pod = deployed.pod["metadata"]
    title = f"[FIRING:1] {CLUSTER}/{deployed.namespace}/chat is down: no replica answers."
    async with contextlib.AsyncExitStack() as stack:
        taking = await stack.enter_async_context(receiver())
        route_messages(deployed, taking)
        routes = await stack.enter_async_context(alertmanager(deployed, tmp_path))
        vllm = await stack.enter_async_context(predictor(tmp_path))
        await stack.enter_async_context(sidecar(deployed, vllm, tmp_path))
        scraping = await stack.enter_async_context(prometheus(deployed, routes, tmp_path))

        there = "/api/v1/query?query=inference_service:specdec_up:max%20==%201"
        await until(scraping.url, there, lambda data: data["result"])
        up = await until(scraping.url, "/api/v1/query?query=specdec_up", lambda data: data["result"])
        drafts = "/api/v1/query?query=inference_service:specdec_drafts:increase30m"
        recorded = await until(scraping.url, drafts, lambda data: data["result"])
        vllm.process.terminate()
        page, *_ = await taking.got("/pagerduty")
        await taking.until(lambda: title in [one["attachments"][0]["title"] for one in taking.at("/slack")])
        rules = await until(scraping.url, "/api/v1/rules", are_evaluated)

    (series,) = up["result"]
    assert series["metric"] == {
        "__name__": "specdec_up",
        "namespace": deployed.namespace,
        "pod": pod["name"],
        "container": "specdec-exporter",
        "endpoint": "specdec",
        "instance": f"{deployed.address}:10409",
        "job": f"{deployed.monitoring}/specdec-exporter",
        "inference_service": "chat",
        "revision": pod["ownerReferences"][0]["name"],
    }
    (service,) = recorded["result"]
    # `cluster` is an external label: no series has it, and the message below does.
    assert service["metric"].keys() == {"__name__", "namespace", "inference_service", "job", "instance", "pod"}
    assert [rule for rule in rules_of(rules) if rule["health"] != "ok"] == []
    assert page["payload"]["summary"] == title
    labels = ", ".join(sorted(series["metric"].keys() - {"__name__"}))
    for step, result in {
        "Prometheus found the pod by our PodMonitor": f"`specdec_up` with {labels}",
        "It evaluated our PrometheusRule": f"{len(rules_of(rules))} rules without an error",
        "vLLM stopped: the alert reached chat and pager": title.replace(deployed.namespace, "prod"),
    }.items():
        transcript.row("From a pod to a message", Step=step, Result=result)


def rules_of(data: Any) -> list[Any]:
    return [rule for group in data["groups"] for rule in group["rules"]]


def are_evaluated(data: Any) -> bool:
    return all(rule["health"] != "unknown" for rule in rules_of(data))
