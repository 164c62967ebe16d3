"""What kustomize makes of deploy/kubernetes, and the schemas of the custom resources in it."""

from __future__ import annotations

import functools
import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from alertmanager.test_operator import ASIDE, CHECKED
from deploy.manifests import KUBERNETES, parse
from support import yamltext
from support.fieldtools import run, schema_file


def built(directory: Path, *flags: str) -> list[Any]:
    answer = run("kustomize", "build", *flags, directory)
    assert answer.returncode == 0, answer.stdout
    return parse(answer.stdout)


def component(directory: Path, service: Any, *parts: str) -> subprocess.CompletedProcess[str]:
    """The answer of kustomize for somebody else's object with parts of ours; its files go into ``directory``."""
    components = [os.path.relpath(KUBERNETES / part, directory) for part in parts]
    (directory / "service.yaml").write_text(yaml.safe_dump(service), encoding="utf-8")
    (directory / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": ["service.yaml"], "components": components}), encoding="utf-8"
    )
    return run("kustomize", "build", directory)


def checkable(schema: Any) -> Any:
    """A schema without what :func:`faults` does not know, so that it checks less."""
    if "x-kubernetes-int-or-string" in schema:
        return {}
    kept = {key: value for key, value in schema.items() if key in CHECKED | ASIDE}
    if "properties" in kept:
        kept["properties"] = {name: checkable(value) for name, value in kept["properties"].items()}
    if "items" in kept:
        kept["items"] = checkable(kept["items"])
    return kept


@functools.cache
def schema(file: str, version: str) -> Any:
    """The schema of a version of a kind, from the definition that ``make tools`` fetches."""
    definition = yamltext.load(schema_file(file).read_text(encoding="utf-8"))
    (found,) = (one for one in definition["spec"]["versions"] if one["name"] == version)
    return checkable(found["schema"]["openAPIV3Schema"])


def variables(container: Any) -> dict[str, str]:
    """Environment of a container; what the pod tells is its path."""
    return {
        one["name"]: one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"] for one in container.get("env", ())
    }
