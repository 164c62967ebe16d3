"""Helm installs the chart into a real API server, upgrades it, rolls it back, and leaves nothing behind."""

from __future__ import annotations

import base64
import json
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from cluster.api import Object, RefusedError
from cluster.controlplane import ControlPlane
from cluster.test_injection import until_pods_have
from cluster.test_lifecycle import inventory
from cluster.transcript import Transcript
from deploy.chart import CHART, nested, text_of
from fieldtools import tool

RELEASE = "pack"
NAME = "pack-specdec-exporter"
RULES = "monitoring.coreos.com/v1/prometheusrules"
LARGEST_SECRET_BYTES = 1 << 20


def helm(plane: ControlPlane, namespace: str, *arguments: str, values: Object | None = None) -> str:
    """What Helm printed. Raises :class:`RefusedError` with what it complained of."""
    answer = subprocess.run(
        [
            *(tool("helm"), *arguments, "--namespace", namespace, "--kubeconfig", str(plane.kubeconfig)),
            *(("--values", "-") if values else ()),
        ],
        input=json.dumps(values),
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    if answer.returncode:
        raise RefusedError(answer.stderr)
    return answer.stdout


def everything(predictors: str, **changes: Any) -> Object:
    """All that the chart can install, for predictors in one namespace."""
    usual = {
        "exporter.enabled": True,
        "exporter.config.predictors": [{"name": "chat", "url": f"http://chat-predictor.{predictors}"}],
        "alertmanagerConfig.enabled": True,
        "alertmanagerConfig.namespaces": [predictors],
        "networkPolicy.enabled": True,
        "networkPolicy.predictorNamespaces": [predictors],
        "sidecarInjection.enabled": True,
        "sidecarInjection.namespaces": [predictors],
        "sidecarInjection.log": True,
    }
    return nested(usual | changes)


def expressions(plane: ControlPlane, namespace: str) -> str:
    rules = plane.api.get(RULES, namespace, NAME)["spec"]["groups"]
    return "\n".join(rule["expr"] for group in rules for rule in group["rules"])


def running_pod(plane: ControlPlane, namespace: str, window: str) -> str:
    """Wait for the exporter's pod with a configuration, and say that it runs."""
    config = plane.api.wait(
        "v1/configmaps", namespace, f"{NAME}-config", lambda one: f"window: {window}" in one["data"]["specdec.yaml"]
    )
    assert config
    deployment = plane.api.get("apps/v1/deployments", namespace, NAME)
    checksum = deployment["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
    name: str = plane.api.until(
        "v1/pods",
        namespace,
        lambda pods: next(
            (
                one["metadata"]["name"]
                for one in pods
                if one["metadata"].get("annotations", {}).get("checksum/config") == checksum
            ),
            "",
        ),
    )
    plane.run_pod(namespace, name, plane.address())
    return name


def test_install_upgrade_rollback_uninstall(
    control_plane: ControlPlane, new_namespace: Callable[..., str], transcript: Transcript
) -> None:
    plane, predictors = control_plane, new_namespace()
    namespace = new_namespace(**{"pod-security.kubernetes.io/enforce": "restricted"})
    before = inventory(plane.api)
    window = "exporter.config.window"

    helm(plane, namespace, "install", RELEASE, str(CHART), values=everything(predictors, **{window: "5m"}))
    first = running_pod(plane, namespace, "5m")
    installed = inventory(plane.api) - before
    (stored,) = plane.api.items("v1/secrets", namespace, labelSelector="owner=helm")

    changed = everything(predictors, **{window: "6m", "thresholds.alert_min_drafts": 4321})
    helm(plane, namespace, "upgrade", RELEASE, str(CHART), values=changed)
    second = running_pod(plane, namespace, "6m")
    assert "4321" in expressions(plane, namespace)
    plane.api.gone("v1/pods", namespace, first)

    helm(plane, namespace, "rollback", RELEASE, "1")
    running_pod(plane, namespace, "5m")
    assert "4321" not in expressions(plane, namespace)
    plane.api.gone("v1/pods", namespace, second)

    helm(plane, namespace, "uninstall", RELEASE)
    for left in inventory(plane.api) - before:
        plane.api.gone(*left)
    assert inventory(plane.api) == before

    size = len(base64.b64decode(stored["data"]["release"]))
    assert size < LARGEST_SECRET_BYTES / 2
    places = {namespace: "the release's", predictors: "the predictors'"}
    kinds = Counter((kind, places.get(where, "-")) for kind, where, name in installed if name.startswith(NAME))
    for (kind, place), number in sorted(kinds.items()):
        transcript.row("The chart", Kind=kind, Namespace=place, Objects=str(number))
    transcript.row(
        "The chart", Kind="the release's Secret", Namespace="the release's", Objects=f"{size:,} of 1,048,576 bytes"
    )


def test_the_chart_adds_sidecars(control_plane: ControlPlane, new_namespace: Callable[..., str]) -> None:
    plane, namespace, predictors = control_plane, new_namespace(), new_namespace()
    image = {"exporter.image.repository": "own.example.com/specdec", "exporter.image.tag": "1.2.3"}

    helm(plane, namespace, "install", RELEASE, str(CHART), values=everything(predictors, **image))
    try:
        found = until_pods_have(plane.api, predictors, {"kserve-container", "specdec-exporter"})
        assert found["specdec-exporter"]["image"] == "own.example.com/specdec:1.2.3"
    finally:
        helm(plane, namespace, "uninstall", RELEASE)


@pytest.mark.parametrize("source", ["exporter", "vllm"])
def test_the_api_server_takes_every_object(control_plane: ControlPlane, namespace: str, source: str) -> None:
    manifest = text_of(everything(namespace) | {"source": source, "namespace": namespace})

    taken = control_plane.apply(manifest, "--dry-run=server", "--validate=strict")

    assert len(taken) > 15
