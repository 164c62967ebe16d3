"""The API server itself adds the sidecar to predictor pods, by the admission policy that we ship."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster import shipped
from cluster.api import WAIT_SECONDS, Api, Object, where
from cluster.controlplane import ControlPlane
from cluster.predictors import pod_of
from fieldtools import ROOT

KUBERNETES = ROOT / "deploy/kubernetes"
POLICIES = "admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicies"
BINDINGS = "admissionregistration.k8s.io/v1beta1/mutatingadmissionpolicybindings"
NAME = "metadata.labels['serving.kserve.io/inferenceservice']"
BOTH = {"kserve-container", "specdec-exporter"}
LABELS = {"serving.kserve.io/inferenceservice": "chat", "component": "predictor"}


def folder_of(name: str) -> list[Object]:
    found = shipped.objects(KUBERNETES / name)
    assert found
    return found


@pytest.fixture
def policy(control_plane: ControlPlane) -> Iterator[Callable[..., None]]:
    """Applies the policy as it is shipped, for a namespace and with other settings, and waits until it works."""
    shipped_policy, binding = folder_of("injection")

    def apply(namespace: str, **settings: str) -> None:
        for one in shipped_policy["spec"]["variables"]:
            one["expression"] = settings.get(one["name"], one["expression"])
        (selected,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
        selected["values"] = [namespace]
        control_plane.apply([shipped_policy, binding])

    yield apply
    control_plane.api.request("DELETE", where(BINDINGS, None, binding["metadata"]["name"]))
    control_plane.api.request("DELETE", where(POLICIES, None, shipped_policy["metadata"]["name"]))


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
    control_plane: ControlPlane, policy: Callable[..., None], namespace: str, log: str
) -> None:
    policy(namespace, log=log)
    first, sidecar = until_pods_have(control_plane.api, namespace, BOTH).values()
    (service,) = (one for one in folder_of("predictor") if one["kind"] == "InferenceService")
    (example,) = (one for one in service["spec"]["predictor"]["containers"] if one["name"] == "specdec-exporter")
    expected = with_defaults(control_plane.api, namespace, {**example, "volumeMounts": []})

    assert first["name"] == "kserve-container"
    # KServe tells the name to its own containers only.
    variables = environment(expected) | {"SPECDEC_PREDICTOR_NAME": NAME}
    if log == "false":
        variables = {name: variables[name] for name in ("SPECDEC_PREDICTOR_URL", "SPECDEC_PREDICTOR_NAME")}
    assert environment(sidecar) == variables
    aside = {"env", "volumeMounts"}  # the token's volume has a new name in each pod
    assert {key: value for key, value in sidecar.items() if key not in aside} == {
        key: value for key, value in expected.items() if key not in aside
    }


def test_other_pods_stay_as_they_are(
    control_plane: ControlPlane, policy: Callable[..., None], new_namespace: Callable[..., str]
) -> None:
    api, namespace, elsewhere = control_plane.api, new_namespace(), new_namespace()
    policy(namespace)
    until_pods_have(api, namespace, BOTH)

    for labels in (
        LABELS | {"component": "transformer"},
        LABELS | {"specdec-exporter/inject": "disabled"},
        {"component": "predictor"},
    ):
        assert containers_of(api, namespace, labels).keys() == {"kserve-container"}, labels
    assert containers_of(api, namespace, name="specdec-exporter").keys() == {"specdec-exporter"}
    assert containers_of(api, elsewhere).keys() == {"kserve-container"}


def test_a_mistake_in_the_settings_stops_no_predictor(
    control_plane: ControlPlane, policy: Callable[..., None], namespace: str
) -> None:
    policy(namespace)
    until_pods_have(control_plane.api, namespace, BOTH)

    policy(namespace, log="[true][1]")

    until_pods_have(control_plane.api, namespace, {"kserve-container"})


def test_pods_that_kserve_makes_get_it(
    kserve: ControlPlane, policy: Callable[..., None], new_namespace: Callable[..., str]
) -> None:
    chosen, other = new_namespace(), new_namespace()
    policy(chosen)
    until_pods_have(kserve.api, chosen, BOTH)

    (service,) = (one for one in folder_of("predictor/base") if one["kind"] == "InferenceService")
    for namespace, names in ((other, {"kserve-container"}), (chosen, BOTH)):
        kserve.apply(shipped.into(namespace, [service]))
        assert {one["name"] for one in pod_of(kserve, namespace)["spec"]["containers"]} == names
