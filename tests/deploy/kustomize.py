"""What kustomize makes of deploy/kubernetes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from deploy.manifests import KUBERNETES, parse
from support.fieldtools import run


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


def variables(container: Any) -> dict[str, str]:
    """Environment of a container; what the pod tells is its path."""
    return {
        one["name"]: one.get("value") or one["valueFrom"]["fieldRef"]["fieldPath"] for one in container.get("env", ())
    }
