"""Knative's own admission takes what KServe makes of ``knative``, and refuses what its component takes away."""

from __future__ import annotations

import json
import subprocess

import pytest

from cluster import shipped
from cluster.api import Object
from cluster.controlplane import ControlPlane
from cluster.transcript import Transcript
from deploy.kustomize import variables
from deploy.manifests import KUBERNETES
from fieldtools import tool


@pytest.fixture(scope="module")
def knative(kserve: ControlPlane) -> ControlPlane:
    """KServe beside Knative's configuration, which it reads before it makes a Service."""
    namespace = kserve.make_namespace("knative-serving")
    metadata = {"name": "config-autoscaler", "namespace": namespace}
    kserve.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {}}])
    return kserve


@pytest.fixture
def service(knative: ControlPlane, namespace: str) -> Object:
    """What KServe asks of Knative."""
    knative.apply(shipped.into(namespace, shipped.objects(KUBERNETES / "knative")))
    found = knative.api.wait("serving.knative.dev/v1/services", namespace, "chat-predictor")
    return {key: found[key] for key in ("apiVersion", "kind", "metadata", "spec")}


def refusal(service: Object) -> str:
    """What Knative's webhook says of a service; nothing if it takes it."""
    text = json.dumps(service)
    answer = subprocess.run([tool("knative-webhook")], input=text, capture_output=True, text=True, check=False)
    assert answer.stderr == ""
    return answer.stdout.strip()


def test_it_takes_what_kserve_makes(service: Object, transcript: Transcript) -> None:
    assert refusal(service) == ""
    transcript.row(
        "Knative", Service="what KServe makes of `deploy/kubernetes/knative`", It_says="nothing: it is taken"
    )
    template = service["spec"]["template"]
    assert template["metadata"]["annotations"]["serving.knative.dev/progress-deadline"] == "1800s"
    assert variables(template["spec"]["containers"][1])["INFERENCE_SERVICE_NAME"] == "chat"


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"ports": [{"name": "specdec", "containerPort": 10409}]}, "more than one container port is set"),
        ({"livenessProbe": {"httpGet": {"path": "/-/healthy", "port": 10409}}}, "livenessProbe"),
        ({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}, "fieldRef"),
    ],
    ids=["a second port", "a probe", "a field of the pod"],
)
def test_it_refuses_what_the_component_takes_away(
    service: Object, transcript: Transcript, change: Object, complaint: str
) -> None:
    service["spec"]["template"]["spec"]["containers"][1] |= change

    said = refusal(service)
    assert complaint in said
    what = ", ".join(change)
    transcript.row("Knative", Service=f"the same, with `{what}` at the sidecar", It_says=" ".join(said.split()))
