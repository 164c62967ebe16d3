"""The API server itself adds the sidecar to predictor pods, by the admission policy that we ship."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster import shipped
from cluster.api import WAIT_SECONDS, Api, Object, where
from cluster.controlplane import ControlPlane
from fieldtools import ROOT

KUBERNETES = ROOT / "deploy/kubernetes"
POLICIES = "admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicies"
BINDINGS = "admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicybindings"
LABELS = {"serving.kserve.io/inferenceservice": "chat", "component": "predictor"}


def folder_of(name: str) -> list[Object]:
    found = shipped.objects(KUBERNETES / name)
    assert found
    return found


@pytest.fixture(scope="module")
def policy(control_plane: ControlPlane) -> Iterator[None]:
    """Policy and binding as they are shipped; no namespace takes part yet."""
    own = [one for one in folder_of("injection") if one["kind"] != "ConfigMap"]
    control_plane.apply(own)
    yield
    control_plane.api.request("DELETE", where(BINDINGS, None, own[0]["metadata"]["name"]))
    control_plane.api.request("DELETE", where(POLICIES, None, own[0]["metadata"]["name"]))


def take_part(plane: ControlPlane, namespace: str, **data: str) -> None:
    """Put the ConfigMap into a namespace, and wait until the policy works there."""
    (settings,) = shipped.into(namespace, [one for one in folder_of("injection") if one["kind"] == "ConfigMap"])
    settings["data"] |= data
    plane.apply([settings])
    until_pods_have(plane.api, namespace, {"kserve-container", "specdec-exporter"})


def until_pods_have(api: Api, namespace: str, names: set[str]) -> Any:
    """Ask for pods until they get these containers: the API server notices a change of a policy after a while."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := containers_of(api, namespace)).keys() != names:
        assert time.monotonic() < deadline, found.keys()
    return found


def containers_of(api: Api, namespace: str, labels: dict[str, str] = LABELS, name: str = "kserve-container") -> Any:
    """The containers of a pod by name, as the API server would make it."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "chat-predictor-", "labels": labels},
        "spec": {"containers": [{"name": name, "image": "vllm"}]},
    }
    made = api.request("POST", where("v1/pods", namespace) + "?dryRun=All", pod)
    return {one["name"]: one for one in made["spec"]["containers"]}


def environment(container: Any) -> dict[str, str]:
    """Values of variables; what the pod tells is its path."""
    return {one["name"]: one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"] for one in container["env"]}


def with_defaults(api: Api, namespace: str, container: Any) -> Any:
    """A container as the API server completes it."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "a-"}, "spec": {"containers": [container]}}
    return api.request("POST", where("v1/pods", namespace) + "?dryRun=All", pod)["spec"]["containers"][0]


@pytest.mark.parametrize("log", ["true", "false"])
def test_a_predictor_gets_the_sidecar_of_the_example(
    control_plane: ControlPlane, policy: None, namespace: str, log: str
) -> None:
    take_part(control_plane, namespace, log=log)
    (service,) = (one for one in folder_of("predictor") if one["kind"] == "InferenceService")
    (example,) = (one for one in service["spec"]["predictor"]["containers"] if one["name"] == "specdec-exporter")
    expected = with_defaults(control_plane.api, namespace, {**example, "volumeMounts": []})

    first, sidecar = containers_of(control_plane.api, namespace).values()

    assert first["name"] == "kserve-container"
    variables = environment(expected)
    if log == "false":
        variables = {name: variables[name] for name in ("SPECDEC_PREDICTOR_URL", "SPECDEC_PREDICTOR_NAME")}
    assert environment(sidecar) == variables
    aside = {"env", "volumeMounts"}  # the token's volume has a new name in each pod
    assert {key: value for key, value in sidecar.items() if key not in aside} == {
        key: value for key, value in expected.items() if key not in aside
    }


def test_other_pods_stay_as_they_are(
    control_plane: ControlPlane, policy: None, new_namespace: Callable[..., str]
) -> None:
    api, namespace, elsewhere = control_plane.api, new_namespace(), new_namespace()
    take_part(control_plane, namespace)

    for labels in (
        LABELS | {"component": "transformer"},
        LABELS | {"specdec-exporter/inject": "disabled"},
        {"component": "predictor"},
    ):
        assert containers_of(api, namespace, labels).keys() == {"kserve-container"}, labels
    assert containers_of(api, namespace, name="specdec-exporter").keys() == {"specdec-exporter"}
    assert containers_of(api, elsewhere).keys() == {"kserve-container"}


def test_a_mistake_in_the_settings_stops_no_predictor(
    control_plane: ControlPlane, policy: None, namespace: str
) -> None:
    take_part(control_plane, namespace)
    settings = where("v1/configmaps", namespace, "specdec-exporter-sidecar")
    control_plane.api.merge(settings, {"data": {"url": None}})

    until_pods_have(control_plane.api, namespace, {"kserve-container"})
