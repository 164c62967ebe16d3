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
from cluster.kserve import STORAGE_CONTAINER
from cluster.predictors import ENFORCE, INFERENCE_SERVICES, RESTRICTED, folders, pod_of, warned
from deploy.manifests import KUBERNETES
from report import Transcript

PREDICTOR = KUBERNETES / "predictor"
STORAGE_URIS = KUBERNETES / "eagle3"
# KServe adds a container that downloads, without a security context. Where pods are restricted, it is refused.
DOWNLOADING = [STORAGE_URIS, KUBERNETES / "model"]


def is_ready(one: Object) -> bool:
    conditions = {condition["type"]: condition["status"] for condition in one.get("status", {}).get("conditions", ())}
    return conditions.get("PredictorReady") == "True"


@pytest.mark.parametrize("folder", folders(), ids=shipped.named)
def test_it_is_deployed(
    kserve: ControlPlane, new_namespace: Callable[..., str], transcript: Transcript, folder: Path
) -> None:
    standard = "baseline" if folder in DOWNLOADING else "restricted"
    namespace = new_namespace(**{ENFORCE: standard})
    kserve.apply(shipped.into(namespace, shipped.objects(folder)))

    pod = pod_of(kserve, namespace)
    kserve.run_pod(namespace, pod["metadata"]["name"], kserve.address())
    name = pod["metadata"]["labels"]["serving.kserve.io/inferenceservice"]
    service = kserve.api.wait(INFERENCE_SERVICES, namespace, name, is_ready)

    containers = [one["name"] for one in pod["spec"]["containers"]]
    initial = [one["name"] for one in pod["spec"].get("initContainers", ())]
    assert containers[0] == "kserve-container"
    assert [*containers, *initial].count("specdec-exporter") == 1
    (deployment,) = kserve.api.items("apps/v1/deployments", namespace)
    assert deployment["metadata"]["ownerReferences"][0]["uid"] == service["metadata"]["uid"]
    assert {one["metadata"]["name"] for one in kserve.api.items("v1/services", namespace)} == {f"{name}-predictor"}
    transcript.row(
        "KServe deploys",
        Manifest=f"`{shipped.named(folder)}`",
        Init_containers=", ".join(initial) or "-",
        Containers=", ".join(containers),
        Pod_Security=standard,
        InferenceService="PredictorReady",
    )


def test_a_storage_container_with_a_security_context_is_allowed(
    kserve: ControlPlane, new_namespace: Callable[..., str]
) -> None:
    """What a platform team does, so that storageUris work where pods are restricted."""
    namespace = new_namespace(**RESTRICTED)
    found = shipped.into(namespace, shipped.objects(STORAGE_URIS))
    (service,) = (one for one in found if one["kind"] == "InferenceService")
    allowed = service["spec"]["predictor"]["containers"][0]["securityContext"]

    kserve.api.merge(STORAGE_CONTAINER, {"spec": {"container": {"securityContext": allowed}}})
    try:
        kserve.apply(found)
        pod = pod_of(kserve, namespace)
    finally:
        kserve.api.merge(STORAGE_CONTAINER, {"spec": {"container": {"securityContext": None}}})

    assert [one["name"] for one in pod["spec"]["initContainers"]] == ["storage-initializer"]


def test_no_limit_of_cpu_is_what_kserve_refuses(kserve: ControlPlane, namespace: str) -> None:
    """Neither schema nor validator says so: only the controller does, with the defaults of KServe's ConfigMap."""
    found = shipped.into(namespace, shipped.objects(PREDICTOR))
    (service,) = (one for one in found if one["kind"] == "InferenceService")
    del service["spec"]["predictor"]["containers"][0]["resources"]["limits"]["cpu"]

    kserve.apply(found)

    assert "must be less than or equal to cpu limit" in warned(kserve, namespace, "limit")


@pytest.mark.parametrize("folder", DOWNLOADING, ids=shipped.named)
def test_what_kserve_adds_is_refused_where_pods_are_restricted(
    kserve: ControlPlane, new_namespace: Callable[..., str], folder: Path
) -> None:
    namespace = new_namespace(**RESTRICTED)

    kserve.apply(shipped.into(namespace, shipped.objects(folder)))

    assert '"storage-initializer"' in warned(kserve, namespace, 'violates PodSecurity "restricted')
