"""JSON schemas for kubeconform: from Kubernetes' own OpenAPI and from the operator's CRDs."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import yaml

from deploy.chart import Loader
from fieldtools import ROOT, SCHEMAS, run

OPENAPI = (
    "api__v1",
    "apis__admissionregistration.k8s.io__v1beta1",
    "apis__apps__v1",
    "apis__networking.k8s.io__v1",
    "apis__rbac.authorization.k8s.io__v1",
)
OPERATOR = ("alertmanagerconfigs", "podmonitors", "prometheusrules", "servicemonitors")


def write(directory: Path) -> None:
    """Write a file ``KIND-VERSION.json`` for each kind."""
    for name, schema in _schemas().items():
        (directory / f"{name}.json").write_text(json.dumps(schema), encoding="utf-8")


@functools.cache
def _schemas() -> dict[str, Any]:
    return _kubernetes() | _operator()


def _kubernetes() -> dict[str, Any]:
    module = run("go", "-C", str(ROOT / "tools/kubernetes"), "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes")
    assert module.returncode == 0, module.stdout
    found: dict[str, Any] = {}
    for group in OPENAPI:
        file = Path(module.stdout.strip()) / "api/openapi-spec/v3" / f"{group}_openapi.json"
        components = json.loads(file.read_text(encoding="utf-8"))["components"]
        for name, schema in components["schemas"].items():
            for kind in schema.get("x-kubernetes-group-version-kind", ()):
                whole = {"$ref": f"#/components/schemas/{name}", "components": components}
                found.setdefault(f"{kind['kind'].lower()}-{kind['version']}", whole)
        for schema in components["schemas"].values():
            _close(schema)
    return found


def _operator() -> dict[str, Any]:
    found = {}
    for plural in OPERATOR:
        text = (SCHEMAS / f"monitoring.coreos.com_{plural}.yaml").read_text(encoding="utf-8")
        definition = yaml.load(text, Loader)
        for version in definition["spec"]["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            _close(schema["properties"]["spec"])
            found[f"{definition['spec']['names']['kind'].lower()}-{version['name']}"] = schema
    return found


def _close(schema: Any) -> None:
    """Allow no field that a schema does not name, as the API server does with strict validation."""
    if isinstance(schema, dict):
        if isinstance(schema.get("properties"), dict) and "x-kubernetes-preserve-unknown-fields" not in schema:
            schema.setdefault("additionalProperties", False)
        for one in schema.values():
            _close(one)
    elif isinstance(schema, list):
        for one in schema:
            _close(one)
