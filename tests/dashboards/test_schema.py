"""Grafana's own types accept the dashboards, to the options of each panel: schema/dashboard.ts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from dashboards.grafana import RENDERED
from support.fieldtools import ROOT
from support.processes import ran

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


# Mistakes that Grafana takes without a word: what they are made of, and the word that the compiler must say.
MISTAKES = {
    '"legendFormat"': ('"legendFromat"', "legendFromat"),
    '"lineWidth"': ('"lineWith"', "lineWith"),
    '"custom.lineStyle"': ('"custom.lineStile"', "custom.lineStile"),
    '"id": "custom.lineWidth", "value": 2': ('"id": "custom.lineWidth", "value": "2"', "value: string"),
}


def compiler_says(folder: Path, documents: Mapping[str, str]) -> str:
    """What the compiler finds wrong with JSON texts, by name; nothing if they are dashboards."""
    assert PACKAGES.exists(), "@grafana/schema is missing: make schema"
    (folder / "node_modules").symlink_to(PACKAGES)
    shutil.copy(TYPES, folder)
    for name, text in documents.items():
        (folder / f"{name}.ts").write_text(
            f"import type {{ Dashboard }} from './dashboard';\nexport const it: Dashboard = {text};\n"
        )
    compiler = ("node", PACKAGES / "typescript" / "bin" / "tsc", *OPTIONS)
    done = ran(*compiler, *(f"{name}.ts" for name in documents), directory=folder)
    assert done.returncode == 0 or done.stdout, done.stderr
    return done.stdout


def test_grafana_s_types_accept_every_dashboard_and_no_mistake(tmp_path: Path) -> None:
    right = {path.stem: json.dumps(json.loads(path.read_text(encoding="utf-8"))) for path in RENDERED.glob("*.json")}
    service = right["specdec-service"]
    wrong = {f"wrong{n}": service.replace(was, made) for n, (was, (made, _)) in enumerate(MISTAKES.items())}

    said = compiler_says(tmp_path, right | wrong)

    for name, (_, word) in zip(wrong, MISTAKES.values(), strict=True):
        assert any(line.startswith(f"{name}.ts") and word in line for line in said.splitlines()), f"{name}: {said}"
    assert [line for line in said.splitlines() if not line.startswith(("wrong", " "))] == []
