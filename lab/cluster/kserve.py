"""KServe's own controllers and webhooks, with the configuration that its release installs.

One setting differs: no ingress is made, since there is no gateway.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cluster.api import where
from cluster.controlplane import ControlPlane, listens
from cluster.definitions import kserve as source
from support import yamltext
from support.certificates import issue
from support.fieldtools import run, tool
from support.processes import free_port, started

NAMESPACE = "kserve"
STORAGE_CONTAINER = where("serving.kserve.io/v1alpha1/clusterstoragecontainers", name="default")


def configuration() -> dict[str, Any]:
    """KServe's ConfigMap; only ingresses are switched off."""
    text = (source() / "config/configmap/inferenceservice.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yamltext.load(text)
    ingress = json.loads(found["data"]["ingress"]) | {"disableIngressCreation": True}
    found["data"]["ingress"] = json.dumps(ingress)
    return found


def reachable(plane: ControlPlane, port: int, path: str) -> dict[str, str]:
    """Where the API server finds a webhook that runs outside of the cluster."""
    return {"url": f"https://127.0.0.1:{port}{path}", "caBundle": plane.authority_base64}


def webhooks(plane: ControlPlane, file: Path, port: int) -> list[Any]:
    """Webhook configurations of the release, which lead to ``port`` instead of a service."""
    found = yamltext.load_all(file.read_text(encoding="utf-8"))
    for one in found:
        for hook in one["webhooks"]:
            hook["clientConfig"] = reachable(plane, port, hook["clientConfig"]["service"]["path"])
    return found


@contextlib.contextmanager
def controller(plane: ControlPlane, name: str, webhook_port: int) -> Iterator[None]:
    """Run one of KServe's controllers until the end of the block."""
    own = plane.directory / name
    certificates = own / "k8s-webhook-server/serving-certs"
    certificates.mkdir(parents=True)
    issue(name, plane.authority, host="127.0.0.1").write(certificates, "tls")
    command = [
        tool(name),
        f"--kubeconfig={plane.kubeconfig}",
        f"--webhook-port={webhook_port}",
        "--health-probe-addr=0",
        "--metrics-addr=0",
    ]
    # It looks for its certificate below the folder for temporary files; no flag names another.
    environment = {"TMPDIR": str(own), "POD_NAMESPACE": NAMESPACE}
    with started(
        name, command, directory=plane.directory, ready=lambda: listens(webhook_port), environment=environment
    ):
        yield


def built(directory: Path) -> str:
    """What kustomize makes of a folder of KServe's sources."""
    answer = run("kustomize", "build", directory)
    assert answer.returncode == 0, answer.stdout
    return answer.stdout


@contextlib.contextmanager
def installed(plane: ControlPlane) -> Iterator[None]:
    """KServe's ConfigMap, controller, webhooks, serving runtimes and storage containers."""
    config = source() / "config"
    port = free_port()
    plane.make_namespace(NAMESPACE)
    plane.apply([configuration()])
    with controller(plane, "kserve-manager", port):
        plane.apply(webhooks(plane, config / "webhook/manifests.yaml", port))
        for folder in ("runtimes", "storagecontainers"):
            plane.apply(built(config / folder))
        yield


@contextlib.contextmanager
def llm_installed(plane: ControlPlane) -> Iterator[None]:
    """The controller and webhooks of LLMInferenceService and its presets, beside KServe."""
    config = source() / "config"
    port = free_port()
    conversion = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": reachable(plane, port, "/convert"), "conversionReviewVersions": ["v1"]},
    }
    for kind in ("llminferenceservices", "llminferenceserviceconfigs"):
        definition = where("apiextensions.k8s.io/v1/customresourcedefinitions", name=f"{kind}.serving.kserve.io")
        plane.api.merge(definition, {"spec": {"conversion": conversion}})
    with controller(plane, "kserve-llmisvc", port):
        plane.apply(webhooks(plane, config / "webhook/llmisvc/manifests.yaml", port))
        plane.apply(built(config / "llmisvcconfig"))
        yield
