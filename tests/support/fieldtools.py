"""Programs of the field that tests run: where each is. A missing one is a failure, for the make target promised it.

Debian's builds are the oldest releases that are supported, the floor; ``make tools`` builds the current ones.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BIN = ROOT / ".tools" / "bin"
SCHEMAS = ROOT / ".tools" / "crd"
FROM_DEBIAN = {
    "promtool": "promtool",
    "prometheus": "prometheus",
    "amtool": "prometheus-alertmanager",
    "prometheus-alertmanager": "prometheus-alertmanager",
    "vmagent": "vmagent",
    "vmalert": "vmalert",
    "victoria-metrics": "vmalert",
    "jsonnet": "jsonnet",
    "chromedriver": "chromedriver",
    "systemd-analyze": "systemd-analyze",
    "buildah": "buildah",
    "runc": "runc",
    "umoci": "umoci",
    "etcd": "etcd",
    "logrotate": "logrotate",
    "svlogd": "svlogd",
    "multilog": "multilog",
    "s6-log": "s6-log",
}
FOR_CLUSTER = {
    "kube-apiserver",
    "kube-controller-manager",
    "kubectl",
    "kserve-manager",
    "kserve-llmisvc",
    "prometheus-operator",
    "prometheus3-sd",
}
FOR_FLEET = {"mimir", "victoria-metrics-current", "vmalert-current"}
NIGHTLY = {"helm", "thanos", "mimirtool", "dashboard-linter", "otelcol"}


def _comes_from(name: str) -> str:
    if name in FROM_DEBIAN:
        return f"tests/debian.sh {FROM_DEBIAN[name]}"
    if name in FOR_CLUSTER:
        return "make cluster-tools"
    if name in FOR_FLEET:
        return "make fleet-tools"
    return "make nightly-tools" if name in NIGHTLY else "make tools"


def tool(name: str) -> str:
    """Path of a program; the test fails where it is missing."""
    own = BIN / name
    if (found := str(own) if own.exists() else shutil.which(name)) is None:
        pytest.fail(f"{name} is missing: {_comes_from(name)}")
    return found


def either(floor: Any, current: Any) -> list[Any]:
    """Parameters of a test or a fixture: the floor for ``make test``, the current release for ``make test-tools``."""
    return [
        pytest.param(floor, id="floor", marks=pytest.mark.debian),
        pytest.param(current, id="current", marks=pytest.mark.field),
    ]


def schema_file(name: str) -> Path:
    """The definition of a kind of Kubernetes object, which ``make tools`` fetches; the test fails without it."""
    if not (found := SCHEMAS / name).exists():
        pytest.fail(f"{name} is missing: {_comes_from(name)}")
    return found


def untidy() -> dict[str, str]:
    """Environment of a program in Go that lives for seconds: it spends a fifth of them on its garbage otherwise."""
    return {"GOGC": "400", **os.environ}


def run(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; output and errors come as one text."""
    return subprocess.run(
        [tool(name), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
