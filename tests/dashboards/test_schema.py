"""Grafana's own types accept the dashboards, to the options of each panel: schema/dashboard.ts."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dashboards.grafana import RENDERED
from fieldtools import ROOT

TYPES = Path(__file__).parent / "schema" / "dashboard.ts"
PACKAGES = ROOT / ".tools" / "schema" / "node_modules"
OPTIONS = (
    "--noEmit",
    "--strict",
    "--skipLibCheck",
    "--module",
    "esnext",
    "--moduleResolution",
    "bundler",
    "--target",
    "es2022",
)

pytestmark = pytest.mark.field


def compiler_says(folder: Path, documents: Mapping[str, Any]) -> str:
    """What the compiler finds wrong with documents, by name; nothing if they are dashboards."""
    assert PACKAGES.exists(), "@grafana/schema is missing: make schema"
    (folder / "node_modules").symlink_to(PACKAGES)
    shutil.copy(TYPES, folder)
    for name, document in documents.items():
        text = json.dumps(document, indent=1)
        (folder / f"{name}.ts").write_text(
            f"import type {{ Dashboard }} from './dashboard';\nexport const it: Dashboard = {text};\n"
        )
    done = subprocess.run(
        ["node", PACKAGES / "typescript" / "bin" / "tsc", *OPTIONS, *(f"{name}.ts" for name in documents)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 or done.stdout, done.stderr
    return done.stdout


def panel(**changes: Any) -> dict[str, Any]:
    return {
        "id": 1,
        "type": "timeseries",
        "title": "Acceptance rate",
        "gridPos": {"x": 0, "y": 0, "w": 8, "h": 8},
        "targets": [{"refId": "A", "expr": "up", "legendFormat": "now"}],
        "options": {"legend": {"displayMode": "list"}},
        "fieldConfig": {"defaults": {"unit": "percentunit", "custom": {"lineWidth": 2}}, "overrides": []},
        **changes,
    }


def dashboard_of(**changes: Any) -> dict[str, Any]:
    return {"schemaVersion": 39, "uid": "tiny", "title": "Tiny", "panels": [panel(**changes)]}


def override(**properties: Any) -> dict[str, Any]:
    listed = [{"id": name, "value": value} for name, value in properties.items()]
    return {"defaults": {}, "overrides": [{"matcher": {"id": "byName", "options": "now"}, "properties": listed}]}


# Mistakes that Grafana takes without a word, and the word that the compiler must say.
MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "target": (dashboard_of(targets=[{"refId": "A", "expr": "up", "legendFromat": "now"}]), "legendFromat"),
    "custom": (dashboard_of(fieldConfig={"defaults": {"custom": {"lineWith": 2}}, "overrides": []}), "lineWith"),
    "override": (dashboard_of(fieldConfig=override(**{"custom.lineStile": {}})), "custom.lineStile"),
    "value": (dashboard_of(fieldConfig=override(decimals="2")), "value: string"),
}


def test_grafana_s_types_accept_every_dashboard(tmp_path: Path) -> None:
    documents = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in RENDERED.glob("*.json")}

    assert compiler_says(tmp_path, documents) == ""


def test_they_do_not_accept_anything(tmp_path: Path) -> None:
    said = compiler_says(
        tmp_path, {"right": dashboard_of()} | {name: document for name, (document, _) in MISTAKES.items()}
    )

    assert "right.ts" not in said
    for name, (_, word) in MISTAKES.items():
        about = [line for line in said.splitlines() if line.startswith(f"{name}.ts")]
        assert any(word in line for line in about), f"{name}: {about}"
