"""InferenceServices on their way to pods, and what stops them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cluster import shipped
from cluster.api import Object
from cluster.controlplane import ControlPlane

INFERENCE_SERVICES = "serving.kserve.io/v1beta1/inferenceservices"
ENFORCE = "pod-security.kubernetes.io/enforce"
RESTRICTED = {ENFORCE: "restricted"}
START_SECONDS = 30.0


def folders() -> list[Path]:
    """Folders of deploy/ whose InferenceService becomes a Deployment with the sidecar."""
    return [
        one
        for one in shipped.folders()
        if one.name != "base" and any(made["kind"] == "InferenceService" for made in shipped.objects(one))
    ]


def pod_of(plane: ControlPlane, namespace: str) -> Object:
    """The one pod of a namespace, once it is there. Fails with the warnings of all who worked on it."""
    try:
        found: list[Any] = plane.api.until("v1/pods", namespace, list, seconds=START_SECONDS)
    except TimeoutError:
        raise AssertionError(f"no pod in {namespace}:\n" + "\n".join(warnings(plane, namespace))) from None
    (pod,) = found
    return dict(pod)


def warnings(plane: ControlPlane, namespace: str) -> list[str]:
    """What events of a namespace warn of, each once."""
    events = plane.api.items("v1/events", namespace, fieldSelector="type=Warning")
    return sorted({f"{one['involvedObject']['kind']} {one['reason']}: {one['message']}" for one in events})


def warned(plane: ControlPlane, namespace: str, text: str) -> str:
    """Wait for a warning that holds ``text``."""

    def having(events: list[Object]) -> str:
        return next((one["message"] for one in events if text in one["message"]), "")

    return plane.api.until("v1/events", namespace, having, fieldSelector="type=Warning")
