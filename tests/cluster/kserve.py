"""KServe's own controllers and webhooks, with the configuration that its release installs.

One setting differs: no ingress is made, since there is no gateway.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from certificates import issue
from cluster.api import where
from cluster.controlplane import ControlPlane, listens, module
from cluster.processes import started
from demo.processes import free_port
from fieldtools import run, tool

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
NAMESPACE = "kserve"
# Definitions of others that KServe can use: it starts to watch those that it finds.
OTHERS = ("knative_service.yaml",)
OTHERS_OF_LLM = (
    "gateway-inference-extension.yaml",
    "gatewayapi_gateway.yaml",
    "gatewayapi_gatewayclasses.yaml",
    "gatewayapi_httproute.yaml",
    "leaderworkerset.x-k8s.io_leaderworkersets.yaml",
)


def source() -> Path:
    """Folder of KServe's sources, as its release has them."""
    return module("kserve", "github.com/kserve/kserve")


def configuration() -> dict[str, Any]:
    """KServe's ConfigMap; only ingresses are switched off."""
    text = (source() / "config/configmap/inferenceservice.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.load(text, LOADER)
    ingress = json.loads(found["data"]["ingress"]) | {"disableIngressCreation": True}
    found["data"]["ingress"] = json.dumps(ingress)
    return found


def reachable(plane: ControlPlane, port: int, path: str) -> dict[str, str]:
    """Where the API server finds a webhook that runs outside of the cluster."""
    return {"url": f"https://127.0.0.1:{port}{path}", "caBundle": plane.authority_base64}


def webhooks(plane: ControlPlane, file: Path, port: int) -> list[Any]:
    """Webhook configurations of the release, which lead to ``port`` instead of a service."""
    found = list(yaml.load_all(file.read_text(encoding="utf-8"), LOADER))
    for one in found:
        for hook in one["webhooks"]:
            hook["clientConfig"] = reachable(plane, port, hook["clientConfig"]["service"]["path"])
    return found


def define(plane: ControlPlane, *files: Path) -> None:
    """Create custom resources from their definitions, and wait until they are served."""
    arguments = [f"--filename={file}" for file in files]
    made = plane.kubectl("create", "--output=name", *arguments).split()
    plane.kubectl("wait", "--for=condition=Established", "--timeout=120s", *made)


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
    ) as process:
        plane.processes.append(process)
        yield


def built(directory: Path) -> str:
    """What kustomize makes of a folder of KServe's sources."""
    answer = run("kustomize", "build", directory)
    assert answer.returncode == 0, answer.stdout
    return answer.stdout


@contextlib.contextmanager
def installed(plane: ControlPlane) -> Iterator[None]:
    """KServe's definitions, ConfigMap, controller, webhooks, serving runtimes and storage containers."""
    config = source() / "config"
    kinds = ("inferenceservices", "servingruntimes", "clusterservingruntimes", "trainedmodels", "inferencegraphs")
    define(
        plane,
        *(config / "crd/full" / f"serving.kserve.io_{kind}.yaml" for kind in kinds),
        config / "crd/full/clusterstoragecontainer/serving.kserve.io_clusterstoragecontainers.yaml",
        *(source() / "test/crds" / file for file in OTHERS),
    )
    plane.make_namespace(NAMESPACE)
    plane.apply([configuration()])
    port = free_port()
    with controller(plane, "kserve-manager", port):
        plane.apply(webhooks(plane, config / "webhook/manifests.yaml", port))
        plane.apply(built(config / "clusterresources"))
        yield


@contextlib.contextmanager
def llm_installed(plane: ControlPlane) -> Iterator[None]:
    """The same of LLMInferenceService, into a control plane that has KServe."""
    config = source() / "config"
    kinds = ("llminferenceservices", "llminferenceserviceconfigs")
    define(
        plane,
        *(config / "crd/full/llmisvc" / f"serving.kserve.io_{kind}.yaml" for kind in kinds),
        *(source() / "test/crds" / file for file in OTHERS_OF_LLM),
    )
    port = free_port()
    conversion = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": reachable(plane, port, "/convert"), "conversionReviewVersions": ["v1"]},
    }
    for kind in kinds:
        definition = where("apiextensions.k8s.io/v1/customresourcedefinitions", name=f"{kind}.serving.kserve.io")
        plane.api.merge(definition, {"spec": {"conversion": conversion}})
    with controller(plane, "kserve-llmisvc", port):
        plane.apply(webhooks(plane, config / "webhook/llmisvc/manifests.yaml", port))
        plane.apply(built(config / "llmisvcconfig"))
        yield
