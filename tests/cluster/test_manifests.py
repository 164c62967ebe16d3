"""The API server takes every object that we ship: no unknown field, no invalid value, and every webhook agrees."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from cluster import shipped
from cluster.api import Object, RefusedError
from cluster.controlplane import ControlPlane
from cluster.transcript import Transcript

STRICT = ("--dry-run=server", "--validate=strict")
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
LARGEST_ANNOTATIONS = 262_144  # bytes; the API server refuses more


@pytest.fixture(scope="module")
def everything(llm: ControlPlane, operator: ControlPlane) -> ControlPlane:
    """Knows all kinds of objects that we ship."""
    return operator


def make_namespaces(plane: ControlPlane, found: list[Object]) -> None:
    there = {one["metadata"]["name"] for one in plane.api.items("v1/namespaces")}
    for name in {one["metadata"].get("namespace", "default") for one in found} - there:
        plane.make_namespace(name)


@pytest.mark.parametrize("path", shipped.folders() + shipped.files(), ids=shipped.named)
def test_the_api_server_takes_it(everything: ControlPlane, transcript: Transcript, path: Path) -> None:
    found = shipped.objects(path)
    make_namespaces(everything, found)

    taken = everything.apply(found, *STRICT)

    assert len(taken) == len(found)
    for line in taken:
        transcript.row("What we ship", {"Manifest": f"`{shipped.named(path)}`", "Object": f"`{line.split()[0]}`"})


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"spec": {"predictor": {"containers": [{"name": "a", "readynessProbe": {}}]}}}, "readynessProbe"),
        ({"spec": {"predictor": {"minReplicas": 3, "maxReplicas": 1, "containers": [{"name": "a"}]}}}, "[Rr]eplicas"),
    ],
    ids=["unknown field", "KServe's validator"],
)
def test_what_is_wrong_is_refused(everything: ControlPlane, change: Object, complaint: str) -> None:
    service = {"apiVersion": "serving.kserve.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "wrong"}}

    with pytest.raises(RefusedError, match=complaint):
        everything.apply([service | change], *STRICT, "--namespace=default")


def test_apply_without_server_side_has_room(everything: ControlPlane, namespace: str, transcript: Transcript) -> None:
    """The usual ``kubectl apply`` keeps a copy of each object in an annotation, whose size is limited."""
    for path in (folder for folder in shipped.folders() if folder.name == "monitoring"):
        text = yaml.safe_dump_all(shipped.into(namespace, shipped.objects(path)))
        everything.kubectl("apply", "-f", "-", stdin=text)
    kinds = ("v1/configmaps", "monitoring.coreos.com/v1/prometheusrules", "monitoring.coreos.com/v1/podmonitors")
    sizes = {
        one["metadata"]["name"]: sum(map(len, one["metadata"]["annotations"].items()))
        for kind in kinds
        for one in everything.api.items(kind, namespace)
        if LAST_APPLIED in one["metadata"].get("annotations", {})
    }

    assert sizes
    assert max(sizes.values()) < LARGEST_ANNOTATIONS
