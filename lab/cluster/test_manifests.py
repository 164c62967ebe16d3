"""The API server takes every object that we ship: no unknown field, no invalid value, and every webhook agrees."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster import shipped
from cluster.api import Object, RefusedError
from cluster.controlplane import ControlPlane
from report import Transcript

STRICT = ("--dry-run=server", "--validate=strict")
SHIPPED = shipped.folders() + shipped.files()


@pytest.fixture(scope="module")
def everything(kserve: ControlPlane, request: pytest.FixtureRequest) -> ControlPlane:
    """Knows all kinds of objects that we ship, and asks KServe's validators about its own."""
    kinds = {one["kind"] for path in SHIPPED for one in shipped.objects(path)}
    if "LLMInferenceService" in kinds:
        request.getfixturevalue("llm")
    return kserve


def make_namespaces(plane: ControlPlane, found: list[Object]) -> None:
    there = {one["metadata"]["name"] for one in plane.api.items("v1/namespaces")}
    for name in {one["metadata"].get("namespace", "default") for one in found} - there:
        plane.make_namespace(name)


@pytest.mark.parametrize("path", SHIPPED, ids=shipped.named)
def test_the_api_server_takes_it(everything: ControlPlane, transcript: Transcript, path: Path) -> None:
    found = shipped.objects(path)
    make_namespaces(everything, found)

    taken = everything.apply(found, *STRICT)

    assert len(taken) == len(found)
    transcript.row("The API server takes", Manifest=f"`{shipped.named(path)}`", Objects=str(len(taken)))


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
