"""Custom resource definitions of KServe, the Prometheus operator, and others that KServe can use.

An API server takes more than a minute to accept them all, and seconds to start with them. So the data of an etcd that
has them are kept in .tools/, until a pin or this file changes.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cluster.api import Object
from cluster.controlplane import ControlPlane, control_plane, module
from support.fieldtools import ROOT

KEPT = ROOT / ".tools" / "cluster"
SECONDS = 180.0
OTHERS = (
    "gateway-inference-extension.yaml",
    "gatewayapi_gateway.yaml",
    "gatewayapi_gatewayclasses.yaml",
    "gatewayapi_httproute.yaml",
    "knative_service.yaml",
    "leaderworkerset.x-k8s.io_leaderworkersets.yaml",
)


def kserve() -> Path:
    """Folder of KServe's sources, as its release has them."""
    return module("kserve", "github.com/kserve/kserve")


def operator() -> Path:
    """Folder of the Prometheus operator's sources."""
    return module("operator", "github.com/prometheus-operator/prometheus-operator")


def files() -> Iterator[Path]:
    """All definitions, each once. KServe's sources hold copies of the others', which its own tests use."""
    full = kserve() / "config/crd/full"
    for folder in (full, full / "clusterstoragecontainer", full / "llmisvc"):
        yield from sorted(folder.glob("serving.kserve.io_*.yaml"))
    yield from sorted((operator() / "example/prometheus-operator-crd").glob("*.yaml"))
    yield from (kserve() / "test/crds" / name for name in OTHERS)


def define(plane: ControlPlane) -> None:
    """Create all, and wait until they are served."""
    flags = [f"--filename={file}" for file in files()]
    made = {line.partition("/")[2] for line in plane.kubectl("create", "--output=name", *flags).split()}

    def are_served(found: list[Object]) -> bool:
        served = {
            one["metadata"]["name"]
            for one in found
            for condition in one.get("status", {}).get("conditions") or ()
            if condition["type"] == "Established" and condition["status"] == "True"
        }
        return made <= served

    plane.api.until("apiextensions.k8s.io/v1/customresourcedefinitions", None, are_served, seconds=SECONDS)


def data() -> Path:
    """Data of an etcd that has all definitions; made if they are not kept yet."""
    pins = [ROOT / "tools" / tool / "go.sum" for tool in ("kubernetes", "kserve", "operator")]
    key = hashlib.sha256(b"".join(file.read_bytes() for file in (*pins, Path(__file__)))).hexdigest()[:16]
    if not (kept := KEPT / key).exists():
        shutil.rmtree(KEPT, ignore_errors=True)
        KEPT.mkdir(parents=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as directory:
            with control_plane(Path(directory)) as plane:
                define(plane)
            (Path(directory) / "etcd").rename(kept)
    return kept
