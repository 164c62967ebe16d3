"""KServe's own defaulter, validator and controller make pods of every InferenceService that we ship.

The namespaces enforce the Pod Security standard `restricted`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster import shipped
from cluster.api import Object
from cluster.controlplane import ControlPlane
from cluster.predictors import INFERENCE_SERVICES, RESTRICTED, folders, pod_of, warned
from cluster.transcript import Transcript
from deploy.manifests import KUBERNETES

PREDICTOR = KUBERNETES / "predictor"
# KServe gives the predictor of a modelcar a security context of its own, which drops ours (0.17, pkg/utils/storage.go).
MODELCAR = KUBERNETES / "eagle3/modelcar"


def is_ready(one: Object) -> bool:
    conditions = {condition["type"]: condition["status"] for condition in one.get("status", {}).get("conditions", ())}
    return conditions.get("PredictorReady") == "True"


@pytest.mark.parametrize("folder", folders(), ids=shipped.named)
def test_it_is_deployed(
    kserve: ControlPlane, new_namespace: Callable[..., str], transcript: Transcript, folder: Path
) -> None:
    namespace = new_namespace(**({} if folder == MODELCAR else RESTRICTED))
    kserve.apply(shipped.into(namespace, shipped.objects(folder)))

    pod = pod_of(kserve, namespace)
    kserve.run_pod(namespace, pod["metadata"]["name"], kserve.address())
    service = kserve.api.wait(INFERENCE_SERVICES, namespace, "chat", is_ready)

    containers = [one["name"] for one in pod["spec"]["containers"]]
    assert containers[:2] == ["kserve-container", "specdec-exporter"]
    (deployment,) = kserve.api.items("apps/v1/deployments", namespace)
    assert deployment["metadata"]["ownerReferences"][0]["uid"] == service["metadata"]["uid"]
    assert {one["metadata"]["name"] for one in kserve.api.items("v1/services", namespace)} == {"chat-predictor"}
    transcript.row(
        "KServe",
        {
            "Manifest": f"`{shipped.named(folder)}`",
            "Init containers": ", ".join(one["name"] for one in pod["spec"].get("initContainers", ())) or "-",
            "Containers": ", ".join(containers),
            "Pod Security": "baseline" if folder == MODELCAR else "restricted",
            "InferenceService": "PredictorReady",
        },
    )


def test_no_limit_of_cpu_is_what_kserve_refuses(kserve: ControlPlane, namespace: str) -> None:
    """Neither schema nor validator says so: only the controller does, with the defaults of KServe's ConfigMap."""
    found = shipped.into(namespace, shipped.objects(PREDICTOR))
    (service,) = (one for one in found if one["kind"] == "InferenceService")
    del service["spec"]["predictor"]["containers"][0]["resources"]["limits"]["cpu"]

    kserve.apply(found)

    assert "must be less than or equal to cpu limit" in warned(kserve, namespace, "limit")


def test_a_modelcar_is_not_allowed_where_pods_are_restricted(
    kserve: ControlPlane, new_namespace: Callable[..., str]
) -> None:
    namespace = new_namespace(**RESTRICTED)

    kserve.apply(shipped.into(namespace, shipped.objects(MODELCAR)))

    assert "modelcar" in warned(kserve, namespace, 'violates PodSecurity "restricted')
