"""Helm installs the chart into a real API server, upgrades it, rolls it back, and leaves nothing behind."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from cluster.api import Object, RefusedError
from cluster.controlplane import ControlPlane
from cluster.test_lifecycle import inventory
from deploy.chart import CHART, nested
from support.fieldtools import tool
from support.processes import ran

RELEASE = "pack"
NAME = "pack-specdec-exporter"
MONITORS = "monitoring.coreos.com/v1/podmonitors"
LARGEST_SECRET_BYTES = 1 << 20


def helm(plane: ControlPlane, namespace: str, *arguments: str, values: Object | None = None) -> None:
    """Run Helm. Raises :class:`RefusedError` with what it complained of."""
    answer = ran(
        *(tool("helm"), *arguments, "--namespace", namespace, "--kubeconfig", str(plane.kubeconfig)),
        *(("--values", "-") if values else ()),
        told=json.dumps(values),
        seconds=180,
    )
    if answer.returncode:
        raise RefusedError(answer.stderr)


def everything(predictors: str, **changes: Any) -> Object:
    """All that the chart can install, for predictors in one namespace."""
    return nested({"networkPolicy.enabled": True, "networkPolicy.namespaces": [predictors]} | changes)


def interval(plane: ControlPlane, namespace: str) -> str:
    (endpoint,) = plane.api.get(MONITORS, namespace, NAME)["spec"]["podMetricsEndpoints"]
    return str(endpoint["interval"])


def test_install_upgrade_rollback_uninstall(control_plane: ControlPlane, new_namespace: Callable[..., str]) -> None:
    plane, predictors, namespace = control_plane, new_namespace(), new_namespace()
    before = inventory(plane.api)

    helm(plane, namespace, "install", RELEASE, str(CHART), values=everything(predictors))
    assert interval(plane, namespace) == "30s"
    (stored,) = plane.api.items("v1/secrets", namespace, labelSelector="owner=helm")

    changed = everything(predictors, **{"podMonitors.interval": "15s"})
    helm(plane, namespace, "upgrade", RELEASE, str(CHART), values=changed)
    assert interval(plane, namespace) == "15s"

    helm(plane, namespace, "rollback", RELEASE, "1")
    assert interval(plane, namespace) == "30s"

    helm(plane, namespace, "uninstall", RELEASE)
    for left in inventory(plane.api) - before:
        plane.api.gone(*left)
    assert inventory(plane.api) == before

    assert len(base64.b64decode(stored["data"]["release"])) < LARGEST_SECRET_BYTES / 2
