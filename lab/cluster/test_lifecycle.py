"""An upgrade changes what it should, and a removal leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable

import yaml

from cluster import shipped
from cluster.api import Api, Object
from cluster.controlplane import ControlPlane
from cluster.predictors import pod_of
from cluster.test_kserve import PREDICTOR
from deploy.manifests import KUBERNETES

# They come and go by themselves, and tell of others.
PASSING = {"events", "leases"}
NEWER = "registry.example.com/specdec-exporter:9.9.9"


def kinds(api: Api) -> list[str]:
    """Every resource that can be listed, each in the version that the API server prefers."""
    groups = [one["preferredVersion"]["groupVersion"] for one in api.request("GET", "/apis")["groups"]]
    found: list[str] = []
    for version, path in [("v1", "/api/v1"), *((one, f"/apis/{one}") for one in groups)]:
        resources = api.request("GET", path)["resources"]
        listed = [one["name"] for one in resources if "list" in one["verbs"] and one["name"] not in PASSING]
        found += [f"{version}/{name}" for name in listed]
    return found


def inventory(api: Api) -> set[tuple[str, str, str]]:
    """Kind, namespace and name of every object in the cluster."""
    return {
        (kind, one["metadata"].get("namespace", ""), one["metadata"]["name"])
        for kind in kinds(api)
        for one in api.items(kind)
    }


def with_image(found: list[Object], image: str) -> list[Object]:
    """The same with another release of the exporter."""
    for one in found:
        if one["kind"] == "InferenceService":
            one["spec"]["predictor"]["containers"][1]["image"] = image
    return found


def images(pod: Object) -> list[str]:
    return [container["image"] for container in pod["spec"]["containers"]]


def test_an_upgrade_rolls_out_and_a_removal_leaves_nothing(
    kserve: ControlPlane, new_namespace: Callable[..., str]
) -> None:
    plane, namespace, monitoring = kserve, new_namespace(), new_namespace()
    before = inventory(plane.api)
    found = shipped.into(namespace, shipped.objects(PREDICTOR))
    found += shipped.into(monitoring, shipped.objects(KUBERNETES / "monitoring"))

    plane.apply(found)
    old = pod_of(plane, namespace)["metadata"]["name"]
    plane.run_pod(namespace, old, plane.address())
    plane.apply(with_image(found, NEWER))
    (new,) = plane.api.until("v1/pods", namespace, lambda pods: [one for one in pods if NEWER in images(one)])
    plane.run_pod(namespace, new["metadata"]["name"], plane.address())
    plane.api.gone("v1/pods", namespace, old)
    upgraded = inventory(plane.api) - before
    plane.kubectl("delete", "-f", "-", stdin=yaml.safe_dump_all(found))
    for left in inventory(plane.api) - before:
        plane.api.gone(*left)

    assert len(upgraded) > len(found)
    assert inventory(plane.api) == before
