"""Grafana's own linter is content with the dashboards, and every exclusion from it is needed and has its reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from support import yamltext
from support.fieldtools import ROOT, run

CONFIG = ROOT / "mixin" / ".lint"
RENDERED = sorted((ROOT / "dashboards" / "rendered").glob("*.json"))
EXCLUSIONS = yamltext.load(CONFIG.read_text(encoding="utf-8"))["exclusions"]

pytestmark = pytest.mark.nightly


def findings(dashboard: Path, config: Path) -> tuple[bool, str]:
    """Whether the linter is content, and its words."""
    answer = run("dashboard-linter", "lint", "--strict", "--verbose", f"--config={config}", dashboard)
    return not answer.returncode, answer.stdout


@pytest.mark.parametrize("dashboard", RENDERED, ids=lambda path: path.stem)
def test_it_is_content(dashboard: Path) -> None:
    content, words = findings(dashboard, CONFIG)

    assert content, words
    assert "Checks that each panel has a title and description." in words


@pytest.mark.parametrize("rule", [name for name in EXCLUSIONS if not name.startswith("alert-")])  # those are mixtool's
def test_an_exclusion_is_needed_and_has_a_reason(rule: str, tmp_path: Path) -> None:
    others = {name: each for name, each in EXCLUSIONS.items() if name != rule}
    (tmp_path / "lint.yaml").write_text(yaml.safe_dump({"exclusions": others}))

    assert re.fullmatch(r"[A-Z].{20,}\.", EXCLUSIONS[rule]["reason"])
    assert not any(findings(dashboard, tmp_path / "lint.yaml")[0] for dashboard in RENDERED[-1:])
