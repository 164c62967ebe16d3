"""The Prometheus operator: it turns our objects into the configuration of Prometheus and of Alertmanager."""

from __future__ import annotations

import base64
import contextlib
import gzip
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from cluster.api import Object
from cluster.controlplane import ControlPlane, listens
from support.fieldtools import tool
from support.processes import free_port, started

NAME = "prometheus-operator"


@contextlib.contextmanager
def installed(plane: ControlPlane) -> Iterator[None]:
    """The operator's process, for all namespaces."""
    port = free_port()
    command = [
        tool(NAME),
        f"--apiserver={plane.url}",
        f"--ca-file={plane.authority_file}",
        f"--cert-file={plane.directory}/admin.crt",
        f"--key-file={plane.directory}/admin.key",
        f"--web.listen-address=127.0.0.1:{port}",
        "--kubelet-endpoints=false",
    ]
    with started(NAME, command, directory=plane.directory, ready=lambda: listens(port)):
        yield


def generated(plane: ControlPlane, namespace: str, secret: str, enough: Callable[[Any], Any]) -> Any:
    """The configuration that the operator wrote into a Secret, parsed, once ``enough`` is true of it."""

    def configuration(found: list[Object]) -> Any:
        for one in found:
            for name, value in one.get("data", {}).items():
                if name.endswith(".yaml.gz") and enough(
                    parsed := yaml.safe_load(gzip.decompress(base64.b64decode(value)))
                ):
                    return parsed
        return None

    return plane.api.until("v1/secrets", namespace, configuration, fieldSelector=f"metadata.name={secret}")
