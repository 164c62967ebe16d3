"""Every Kubernetes object of the repository, found by walking the tree: a new file is tested without a change here."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cluster.api import Object
from support import yamltext
from support.fieldtools import ROOT, run

FOLDERS = ("deploy", "alertmanager", "rules", "dashboards")


@cache
def _documents(file: Path) -> list[Any]:
    """Documents of a YAML file; none if it is a template of Helm, which is no YAML."""
    try:
        return yamltext.load_all(file.read_text(encoding="utf-8"))
    except yaml.YAMLError:
        return []


def _files() -> list[Path]:
    """Without the chart: test_chart.py installs it."""
    found = (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.yaml") if file.is_file())
    return sorted(file for file in found if not file.is_relative_to(ROOT / "deploy/helm"))


def _kustomizations() -> dict[Path, Any]:
    """Each kustomization.yaml, components as well."""
    return {file: _documents(file)[0] for file in _files() if file.name == "kustomization.yaml"}


def folders() -> list[Path]:
    """Folders that ``kubectl apply -k`` takes."""
    return [file.parent for file, one in _kustomizations().items() if one["kind"] == "Kustomization"]


def files() -> list[Path]:
    """Files with whole objects that no kustomization uses."""
    used = {
        (file.parent / path).resolve()
        for file, one in _kustomizations().items()
        for path in (*one.get("resources", ()), *(patch.get("path", "") for patch in one.get("patches", ())))
    }
    return [
        file
        for file in _files()
        if file not in used
        and any(isinstance(one, dict) and {"apiVersion", "kind", "metadata"} <= one.keys() for one in _documents(file))
    ]


@cache
def _built(folder: Path) -> list[Object]:
    answer = run("kustomize", "build", "--load-restrictor=LoadRestrictionsNone", folder)
    assert answer.returncode == 0, answer.stdout
    return yamltext.load_all(answer.stdout)


def objects(path: Path) -> list[Object]:
    """What a folder's kustomization gives, or a file."""
    return copy.deepcopy(_built(path) if path.is_dir() else _documents(path))


def into(namespace: str, found: list[Object]) -> list[Object]:
    """The same objects in another namespace, subjects of role bindings too."""
    for one in found:
        one["metadata"]["namespace"] = namespace
        for subject in one.get("subjects", ()):
            subject["namespace"] = namespace
    return found


def named(path: Path) -> str:
    """How tests and the transcript call it."""
    return str(path.relative_to(ROOT))
